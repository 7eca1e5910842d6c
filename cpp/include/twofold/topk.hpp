// The one ordering rule of Twofold - score descending, then ordinal ascending - and selection by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace twofold {

struct Hit {
    float score;
    std::uint32_t ordinal;
};

/// True where `a` comes before `b`: the higher score first, the older row on a tie. Scores must not be NaN.
[[nodiscard]] constexpr bool before(const Hit& a, const Hit& b) noexcept {
    return a.score > b.score || (a.score == b.score && a.ordinal < b.ordinal);
}

/// Sorts `hits` by the ordering rule and drops all but the first k.
void keep_best(std::vector<Hit>& hits, std::size_t k);

/// The k-th largest of `values` (k >= 1, counted from one), or -infinity where there are fewer. Reorders
/// `values`.
[[nodiscard]] float kth_largest(std::span<float> values, std::size_t k);

}  // namespace twofold
