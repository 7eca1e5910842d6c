#include "twofold/blend.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "select.hpp"
#include "slots.hpp"

namespace twofold {
namespace {

void check_places(std::span<const std::int64_t> places, std::size_t size, const char* name) {
    for (const std::int64_t place : places) {
        if (place < 0 || static_cast<std::size_t>(place) >= size) {
            throw std::out_of_range(std::string(name) + " has " + std::to_string(place) + ", not below " +
                                    std::to_string(size));
        }
    }
}

double mean(std::span<const double> values) {
    return exact_sum(values) / static_cast<double>(std::max<std::size_t>(values.size(), 1));
}

/// Numbers by sum descending, equal sums ascending.
std::vector<std::int64_t> order_of(std::span<const double> sums) {
    std::vector<detail::Scored> items;
    items.reserve(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) items.push_back({sums[i], static_cast<std::int64_t>(i)});
    std::sort(items.begin(), items.end(), detail::Better{});
    std::vector<std::int64_t> order;
    order.reserve(items.size());
    for (const detail::Scored& item : items) order.push_back(item.ordinal);
    return order;
}

/// What is taken off each row for the rows of its session with a higher sum, or an equal one and an earlier
/// place.
std::vector<double> repeats(std::span<const std::int64_t> rows, std::span<const double> sums,
                            const SessionColumns& sessions) {
    if (!rows.empty() && static_cast<std::size_t>(rows.back()) >= sessions.codes.size())
        throw std::out_of_range("codes has too few rows");
    detail::Grouped groups(rows.size(),
                           [&](std::size_t i) { return sessions.codes[static_cast<std::size_t>(rows[i])]; });
    std::vector<double> out(rows.size(), -sessions.repeats * 0.0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const auto members = groups.group(g);
        std::sort(members.begin(), members.end(), [sums](std::uint32_t a, std::uint32_t b) {
            return sums[a] > sums[b] || (sums[a] == sums[b] && a < b);
        });
        for (std::size_t better = 0; better < members.size(); ++better)
            out[members[better]] = -sessions.repeats * sessions.logs[better];
    }
    return out;
}

}  // namespace

double exact_sum(std::span<const double> values) {
    // Shewchuk: partial sums that do not overlap, smallest first, whose total is exact.
    std::vector<double> partials;
    for (double x : values) {
        std::size_t kept = 0;
        for (double y : partials) {
            if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
            const double high = x + y;
            const double low = y - (high - x);
            if (low != 0.0) partials[kept++] = low;
            x = high;
        }
        partials.resize(kept);
        if (x != 0.0) partials.push_back(x);
    }
    if (partials.empty()) return 0.0;
    double high = partials.back();
    partials.pop_back();
    double low = 0.0;
    while (!partials.empty() && low == 0.0) {
        const double before = high;
        const double next = partials.back();
        partials.pop_back();
        high = before + next;
        low = next - (high - before);
    }
    // A tie was rounded to even although what is left lies on one side of it.
    if (!partials.empty() && low != 0.0 && (low < 0.0) == (partials.back() < 0.0)) {
        const double twice = low * 2.0;
        const double other = high + twice;
        if (twice == other - high) high = other;
    }
    return high;
}

Relevance relevance(std::span<const std::int64_t> chosen, std::span<const double> lexical,
                    std::span<const double> cosine, const LateFound* late, const RelevanceWeights& weights) {
    const std::size_t size = lexical.size();
    if (cosine.size() != size) throw std::invalid_argument("lexical and cosine differ in length");
    check_places(chosen, size, "chosen");
    if (late != nullptr) {
        if (late->coded.size() != size) throw std::invalid_argument("coded has not one flag per place");
        if (late->known.size() != late->similarity.size()) {
            throw std::invalid_argument("known and similarity differ in length");
        }
        check_places(late->known, chosen.size(), "known");
    }
    Relevance out;
    if (weights.lexical != 0.0) {
        double best = 0.0;
        for (const std::int64_t place : chosen)
            best = std::max(best, lexical[static_cast<std::size_t>(place)]);
        out.lexical.resize(size);
        for (std::size_t i = 0; i < size; ++i) {
            out.lexical[i] = weights.lexical * (best > 0.0 ? std::max(lexical[i], 0.0) / best : 0.0);
        }
    }
    if (weights.cosine == 0.0) return out;
    std::vector<double> of_chosen;
    of_chosen.reserve(chosen.size());
    for (const std::int64_t place : chosen) of_chosen.push_back(cosine[static_cast<std::size_t>(place)]);
    const double zero = mean(of_chosen);
    out.cosine.resize(size);
    for (std::size_t i = 0; i < size; ++i) {
        const double weight = late != nullptr && late->coded[i] != 0 ? weights.late_cosine : weights.cosine;
        out.cosine[i] = weight * (weights.scale * (cosine[i] - zero));
    }
    if (late != nullptr) {
        const double typical = mean(late->similarity);
        out.late.assign(size, weights.late * 0.0);
        for (std::size_t i = 0; i < late->known.size(); ++i) {
            const auto place = static_cast<std::size_t>(chosen[static_cast<std::size_t>(late->known[i])]);
            out.late[place] = weights.late * (late->similarity[i] - typical);
        }
    }
    return out;
}

Fused fuse(const PoolView& pool, std::span<const std::span<const double>> relevance,
           std::span<const SparseScores> layers, const TurnColumns* turns, const SessionColumns* sessions,
           std::span<const std::span<const double>> given) {
    const std::size_t count = pool.chosen.size();
    check_places(pool.chosen, pool.ordinals.size(), "chosen");
    std::vector<double> base(pool.ordinals.size(), 0.0);
    std::vector<std::vector<double>> addends;
    for (const auto addend : relevance) {
        if (addend.size() != base.size())
            throw std::invalid_argument("relevance has not one value per place");
        for (std::size_t p = 0; p < base.size(); ++p) base[p] += addend[p];
        std::vector<double>& own = addends.emplace_back();
        own.reserve(count);
        for (const std::int64_t place : pool.chosen) own.push_back(addend[static_cast<std::size_t>(place)]);
    }
    std::vector<std::int64_t> rows;
    rows.reserve(count);
    for (const std::int64_t place : pool.chosen)
        rows.push_back(pool.ordinals[static_cast<std::size_t>(place)]);
    for (const SparseScores& layer : layers) {
        if (layer.rows.size() != layer.scores.size())
            throw std::invalid_argument("a layer has not one score per row");
        std::vector<double>& own = addends.emplace_back(count, layer.weight * 0.0);
        for (std::size_t i = 0; i < layer.rows.size(); ++i) {
            const auto found = std::lower_bound(rows.begin(), rows.end(), layer.rows[i]);
            if (found == rows.end() || *found != layer.rows[i]) {
                throw std::out_of_range("row " + std::to_string(layer.rows[i]) +
                                        " of a layer is no candidate");
            }
            own[static_cast<std::size_t>(found - rows.begin())] = layer.weight * layer.scores[i];
        }
    }
    if (turns != nullptr) {
        addends.push_back(
            turn_terms(pool, base, turns->tokens, turns->asks, turns->has_role, turns->weights));
    }
    if (sessions != nullptr && sessions->weight != 0.0) {
        addends.push_back(session_terms(pool, base, sessions->codes, sessions->weight, sessions->top));
    }
    for (const auto addend : given) {
        if (addend.size() != count)
            throw std::invalid_argument("what is given has not one value per candidate");
        addends.emplace_back(addend.begin(), addend.end());
    }
    std::vector<double> sums(count, 0.0);
    for (const std::vector<double>& addend : addends) {
        for (std::size_t i = 0; i < count; ++i) sums[i] += addend[i];
    }
    if (sessions != nullptr && sessions->repeats != 0.0) {
        if (sessions->logs.size() < count)
            throw std::invalid_argument("logs has not one value per candidate");
        addends.push_back(repeats(rows, sums, *sessions));
        for (std::size_t i = 0; i < count; ++i) sums[i] += addends.back()[i];
    }
    const std::vector<std::int64_t> order = order_of(sums);
    Fused out;
    out.rows.reserve(count);
    out.scores.reserve(count);
    out.addends.reserve(addends.size() * count);
    for (const std::int64_t i : order) {
        out.rows.push_back(rows[static_cast<std::size_t>(i)]);
        out.scores.push_back(sums[static_cast<std::size_t>(i)]);
    }
    for (const std::vector<double>& addend : addends) {
        for (const std::int64_t i : order) out.addends.push_back(addend[static_cast<std::size_t>(i)]);
    }
    return out;
}

std::vector<double> above_mean(std::span<const double> scores, std::span<const std::int64_t> groups,
                               std::span<const std::int64_t> rows) {
    check_places(rows, groups.size(), "rows");
    std::vector<double> found;
    std::vector<std::size_t> inside;
    found.reserve(rows.size());
    inside.reserve(rows.size());
    double best = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t group = groups[static_cast<std::size_t>(rows[i])];
        if (group < 0) continue;
        if (static_cast<std::size_t>(group) >= scores.size()) {
            throw std::out_of_range("group " + std::to_string(group) + " has no score");
        }
        found.push_back(scores[static_cast<std::size_t>(group)]);
        inside.push_back(i);
        best = std::max(best, found.back());
    }
    std::vector<double> out(rows.size(), 0.0);
    if (!(best > 0.0)) return out;
    const double typical = mean(found);
    for (std::size_t n = 0; n < found.size(); ++n) out[inside[n]] = (found[n] - typical) / best;
    return out;
}

}  // namespace twofold
