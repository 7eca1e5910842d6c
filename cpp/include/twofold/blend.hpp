// The arithmetic of fusion: addends per candidate, their sums in the order given, and the order of the sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

/// Candidate numbers by sum descending, equal sums in the order of the candidates; `sums` has the sum of each
/// candidate's addends, added to 0 in the order of `addends`.
std::vector<std::int64_t> blend(std::span<const std::span<const double>> addends, std::span<double> sums);

}  // namespace twofold
