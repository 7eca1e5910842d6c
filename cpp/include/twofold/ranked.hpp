// The shape of every ranked answer: parallel arrays, best first, ties by ordinal ascending.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace twofold {

using OrdinalSpan = std::span<const std::int64_t>;

struct Ranked {
    std::vector<std::int64_t> ordinals;
    std::vector<double> scores;
};

}  // namespace twofold
