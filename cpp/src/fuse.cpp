#include "twofold/fuse.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "select.hpp"
#include "slots.hpp"

namespace twofold {
namespace {

using detail::Scored;

/// The sums of scores by ordinal; sized once for the largest possible union.
class Union {
  public:
    explicit Union(std::size_t most) : slots_(most) {
        items_.reserve(most);
        last_list_.reserve(most);
    }

    void add(std::int64_t ordinal, double score, std::size_t list) {
        const std::uint32_t position = slots_.of(ordinal);
        if (position == items_.size()) {
            items_.push_back({score, ordinal});
            last_list_.push_back(list);
            return;
        }
        if (last_list_[position] == list) {
            throw std::invalid_argument("ordinal " + std::to_string(ordinal) + " is twice in list " +
                                        std::to_string(list));
        }
        last_list_[position] = list;
        items_[position].score += score;
    }

    Ranked ranked() {
        detail::keep_best(items_, items_.size());
        return detail::to_ranked(items_);
    }

  private:
    detail::Slots slots_;
    std::vector<Scored> items_;
    std::vector<std::size_t> last_list_;
};

std::size_t total_size(std::span<const OrdinalSpan> lists) {
    std::size_t total = 0;
    for (const OrdinalSpan list : lists) total += list.size();
    if (total >= 0x7fffffffU) throw std::length_error("the lists hold more than 2^31 ordinals");
    return total;
}

void check_weights(std::span<const double> weights, std::size_t lists) {
    if (weights.size() != lists) {
        throw std::invalid_argument("got " + std::to_string(weights.size()) + " weights for " +
                                    std::to_string(lists) + " lists");
    }
    for (const double weight : weights) {
        if (!std::isfinite(weight)) throw std::invalid_argument("weights must be finite");
    }
}

void check_finite(ScoreSpan scores) {
    for (const double score : scores) {
        if (!std::isfinite(score)) throw std::invalid_argument("scores must be finite");
    }
}

void check_positions(OrdinalSpan positions, std::size_t count, const char* name) {
    for (const std::int64_t position : positions) {
        if (position < -1 || position >= static_cast<std::int64_t>(count)) {
            throw std::out_of_range(std::string(name) + " holds " + std::to_string(position) +
                                    ", not in [-1, " + std::to_string(count) + ")");
        }
    }
}

}  // namespace

Ranked rrf(std::span<const OrdinalSpan> lists, double k, std::span<const double> weights) {
    if (!(std::isfinite(k) && k >= 0.0)) throw std::invalid_argument("k must be finite and not negative");
    if (!weights.empty()) check_weights(weights, lists.size());
    Union merged(total_size(lists));
    for (std::size_t i = 0; i < lists.size(); ++i) {
        const double weight = weights.empty() ? 1.0 : weights[i];
        for (std::size_t r = 0; r < lists[i].size(); ++r) {
            merged.add(lists[i][r], weight / (k + static_cast<double>(r + 1)), i);
        }
    }
    return merged.ranked();
}

Ranked convex(std::span<const OrdinalSpan> lists, std::span<const ScoreSpan> scores,
              std::span<const double> weights) {
    if (lists.size() != scores.size()) throw std::invalid_argument("every list needs its scores");
    check_weights(weights, lists.size());
    Union merged(total_size(lists));
    for (std::size_t i = 0; i < lists.size(); ++i) {
        if (lists[i].size() != scores[i].size()) {
            throw std::invalid_argument("list " + std::to_string(i) + " has " +
                                        std::to_string(lists[i].size()) + " ordinals and " +
                                        std::to_string(scores[i].size()) + " scores");
        }
        check_finite(scores[i]);
        double best = 0.0;
        for (const double score : scores[i]) best = score > best ? score : best;
        for (std::size_t r = 0; r < lists[i].size(); ++r) {
            const double share = scores[i][r] > 0.0 ? scores[i][r] / best : 0.0;
            merged.add(lists[i][r], weights[i] * share, i);
        }
    }
    return merged.ranked();
}

void smooth(ScoreSpan scores, OrdinalSpan previous, OrdinalSpan next, OrdinalSpan session,
            const SmoothWeights& weights, std::span<double> out) {
    const std::size_t count = scores.size();
    if (previous.size() != count || next.size() != count || session.size() != count || out.size() != count) {
        throw std::invalid_argument("scores, previous, next and session must have one value per candidate");
    }
    if (!std::isfinite(weights.previous) || !std::isfinite(weights.next) || !std::isfinite(weights.session)) {
        throw std::invalid_argument("smoothing weights must be finite");
    }
    if (weights.session_top == 0) throw std::invalid_argument("session_top must be at least 1");
    check_finite(scores);
    check_positions(previous, count, "previous");
    check_positions(next, count, "next");
    for (std::size_t i = 0; i < count; ++i) {
        double sum = scores[i];
        if (previous[i] >= 0) sum += weights.previous * scores[static_cast<std::size_t>(previous[i])];
        if (next[i] >= 0) sum += weights.next * scores[static_cast<std::size_t>(next[i])];
        out[i] = sum;
    }
    std::vector<std::size_t> order;
    order.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (session[i] >= 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (session[a] != session[b]) return session[a] < session[b];
        if (scores[a] != scores[b]) return scores[a] > scores[b];
        return a < b;
    });
    for (std::size_t first = 0; first < order.size();) {
        std::size_t last = first;
        double sum = 0.0;
        while (last < order.size() && session[order[last]] == session[order[first]]) {
            if (last - first < weights.session_top) sum += scores[order[last]];
            ++last;
        }
        const double mean = sum / static_cast<double>(std::min(weights.session_top, last - first));
        for (std::size_t i = first; i < last; ++i) out[order[i]] += weights.session * mean;
        first = last;
    }
}

Ranked top(OrdinalSpan ordinals, ScoreSpan scores, std::size_t k) {
    if (ordinals.size() != scores.size()) {
        throw std::invalid_argument("got " + std::to_string(ordinals.size()) + " ordinals and " +
                                    std::to_string(scores.size()) + " scores");
    }
    check_finite(scores);
    std::vector<Scored> items(ordinals.size());
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = {scores[i], ordinals[i]};
    detail::keep_best(items, k);
    return detail::to_ranked(items);
}

void places(OrdinalSpan list, OrdinalSpan wanted, std::span<std::int64_t> out) {
    if (out.size() != wanted.size()) throw std::invalid_argument("out has not one value per wanted ordinal");
    for (std::size_t w = 0; w < wanted.size(); ++w) {
        const auto found = std::find(list.begin(), list.end(), wanted[w]);
        out[w] = found == list.end() ? -1 : found - list.begin();
    }
}

}  // namespace twofold
