#include "twofold/blend.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

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

std::vector<std::int64_t> blend(std::span<const std::span<const double>> addends, std::span<double> sums) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (const auto addend : addends) {
        if (addend.size() != sums.size())
            throw std::invalid_argument("an addend has not one value per candidate");
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += addend[i];
    }
    std::vector<std::int64_t> order(sums.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::sort(order.begin(), order.end(), [sums](std::int64_t a, std::int64_t b) {
        const double first = sums[static_cast<std::size_t>(a)];
        const double second = sums[static_cast<std::size_t>(b)];
        return first > second || (first == second && a < b);
    });
    return order;
}

}  // namespace twofold
