// The arithmetic of fusion: addends per candidate, their sums in the order given, and the order of the sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "twofold/turns.hpp"

namespace twofold {

/// The sum rounded once, as Python's math.fsum gives it; values are finite and their sums do not overflow.
double exact_sum(std::span<const double> values);

struct RelevanceWeights {
    double lexical;      ///< of a row's score by the best candidate's; 0 leaves the addend out
    double cosine;       ///< of the cosine above the candidates' mean; 0 leaves it and `late` out
    double late_cosine;  ///< the same for rows with token codes
    double late;         ///< of the late similarity above its mean
    double scale;        ///< of the cosines
};

/// What late interaction found: which places of the pool have codes, and of which candidates (numbers into
/// `chosen`) it gives similarities.
struct LateFound {
    std::span<const std::uint8_t> coded;
    std::span<const std::int64_t> known;
    std::span<const double> similarity;
};

/// Addends of relevance, one value per place of a pool; an empty one is left out.
struct Relevance {
    std::vector<double> lexical;
    std::vector<double> cosine;
    std::vector<double> late;
};

/// lexical and cosine have a value per place, chosen the candidates' places. late: nullptr for none.
Relevance relevance(std::span<const std::int64_t> chosen, std::span<const double> lexical,
                    std::span<const double> cosine, const LateFound* late, const RelevanceWeights& weights);

/// Scores that some rows have: those of a layer's candidates. Rows outside the pool's candidates throw.
struct SparseScores {
    std::span<const std::int64_t> rows;
    std::span<const double> scores;
    double weight;
};

/// Read at the rows of a pool.
struct TurnColumns {
    std::span<const std::int32_t> tokens;
    std::span<const std::uint8_t> asks;
    std::span<const std::uint8_t> has_role;
    TurnWeights weights;
};

/// codes are read at the rows of a pool; an addend whose weight is 0 is left out.
struct SessionColumns {
    std::span<const std::int64_t> codes;
    double weight;                 ///< of session_terms
    std::size_t top;
    double repeats;                ///< taken off, times logs[number of better candidates of the session]
    std::span<const double> logs;  ///< at least one per candidate where repeats is not 0
};

struct Fused {
    std::vector<std::int64_t> rows;  ///< best first, equal ones ascending
    std::vector<double> scores;
    std::vector<double> addends;  ///< one after the other, each with a value per row in that order
};

/// Scores of a pool's candidates: the sum of, in this order, relevance (a value per place each; its sum is the
/// base of the next three), the layers' own scores, turns and sessions (nullptr: neither addend), what is
/// `given` per candidate, and the repeats of a session.
Fused fuse(const PoolView& pool, std::span<const std::span<const double>> relevance,
           std::span<const SparseScores> layers, const TurnColumns* turns, const SessionColumns* sessions,
           std::span<const std::span<const double>> given);

/// For each row the score of its group above the rows' mean, by the best of them: (s - mean) / best. 0 for rows
/// whose group is negative, and for all where no score is above 0.
std::vector<double> above_mean(std::span<const double> scores, std::span<const std::int64_t> groups,
                               std::span<const std::int64_t> rows);

}  // namespace twofold
