// The one ordering rule, (score descending, ordinal ascending), and the selection of the best k by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "twofold/ranked.hpp"

namespace twofold::detail {

struct Scored {
    double score;
    std::int64_t ordinal;
};

struct Better {
    bool operator()(const Scored& a, const Scored& b) const {
        return a.score > b.score || (a.score == b.score && a.ordinal < b.ordinal);
    }
};

/// Leaves the best min(k, size) of `items`, best first.
static inline void keep_best(std::vector<Scored>& items, std::size_t k) {
    if (k < items.size()) {
        std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(k), items.end(),
                         Better{});
        items.resize(k);
    }
    std::sort(items.begin(), items.end(), Better{});
}

static inline Ranked to_ranked(const std::vector<Scored>& items) {
    Ranked out;
    out.ordinals.resize(items.size());
    out.scores.resize(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        out.ordinals[i] = items[i].ordinal;
        out.scores[i] = items[i].score;
    }
    return out;
}

}  // namespace twofold::detail
