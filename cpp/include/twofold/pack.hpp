// Diversity and the token budget: MMR, near duplicates, greedy packing. Positions index the given arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace twofold {

/// count x dim unit rows, C-contiguous; a zero row is similar to nothing.
struct Rows {
    std::span<const float> values;
    std::size_t dim;
    std::size_t count() const { return dim == 0 ? 0 : values.size() / dim; }
    std::span<const float> operator[](std::size_t row) const { return values.subspan(row * dim, dim); }
};

/// Maximal marginal relevance: k times the position with the largest
/// lambda * relevance - (1 - lambda) * (largest cosine with a chosen row, 0 before the first choice).
/// Equal values go to the lower position. 0 <= lambda <= 1. Returns positions in the order chosen.
std::vector<std::int64_t> mmr(std::span<const double> relevance, const Rows& rows, double lambda,
                              std::size_t k);

/// Takes each item in order whose tokens + overhead still fit; skips it otherwise. Never over the budget.
std::vector<std::int64_t> pack(std::span<const std::int64_t> tokens, std::int64_t budget,
                               std::int64_t overhead);

/// As pack, but tried in the order of value / (tokens + overhead) descending, ties by position.
/// Returns positions ascending.
std::vector<std::int64_t> pack_value(std::span<const std::int64_t> tokens, std::span<const double> values,
                                     std::int64_t budget, std::int64_t overhead);

/// For each row the first earlier row with cosine >= threshold that is itself no duplicate, or -1.
std::vector<std::int64_t> near_duplicates(const Rows& rows, double threshold);

}  // namespace twofold
