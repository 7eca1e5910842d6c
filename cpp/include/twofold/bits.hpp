// Late interaction over token codes of one bit a dimension. Distances are integers; sums run in query order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace twofold {

/// For each row r the weighted mean over query codes of the greatest cosine-like similarity
/// 1 - 2 * hamming / bits with one of its codes [starts[r], stops[r]); 0 for a row without codes or where no
/// weight is positive. query and codes hold `words` words of 64 bits a code; weights has one finite value
/// >= 0 per query code. kernel: a level's name, "" for the best. Throws std::invalid_argument on sizes and
/// weights that do not fit, std::out_of_range on codes outside.
std::vector<double> bits_maxsim(std::span<const std::uint64_t> query, std::span<const double> weights,
                                std::span<const std::uint64_t> codes, std::size_t words,
                                std::span<const std::int64_t> starts, std::span<const std::int64_t> stops,
                                std::string_view kernel = {});

/// Inverse document frequency of BM25, log(1 + (documents - df + 0.5) / (df + 0.5)), of each df.
std::vector<double> rarity(std::span<const std::int64_t> document_frequency, double documents);

/// Of the places of a pool, those whose one vector has token codes.
struct Coded {
    std::vector<std::uint8_t> places;   ///< a flag per place
    std::vector<std::int64_t> known;    ///< numbers of the chosen places that have codes
    std::vector<std::int64_t> vectors;  ///< the vector of each of those
};

/// vectors: the vector of each place; single: a flag per place whether it is its only one.
/// starts and stops are read at the vectors.
Coded coded_places(std::span<const std::int64_t> vectors, std::span<const std::uint8_t> single,
                   std::span<const std::int64_t> chosen, std::span<const std::int64_t> starts,
                   std::span<const std::int64_t> stops);

}  // namespace twofold
