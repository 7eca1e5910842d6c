// Fusion of ranked lists and context smoothing. Sums run in the order of the lists, so the bits are fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "twofold/ranked.hpp"

namespace twofold {

using ScoreSpan = std::span<const double>;

/// Reciprocal rank fusion. lists[i] holds ordinals best first, none twice; the score of an ordinal is
/// the sum of weights[i] / (k + rank), rank from 1. Empty weights mean 1 for every list.
Ranked rrf(std::span<const OrdinalSpan> lists, double k, std::span<const double> weights);

/// Convex fusion over the union of the lists: the sum of weights[i] * max(score, 0) / (best of list i).
/// A list without a positive score adds 0 to its ordinals.
Ranked convex(std::span<const OrdinalSpan> lists, std::span<const ScoreSpan> scores,
              std::span<const double> weights);

struct SmoothWeights {
    double previous;
    double next;
    double session;
    std::size_t session_top;  ///< how many best scores of a session its mean is taken over
};

/// out[i] = scores[i] + previous * scores[previous[i]] + next * scores[next[i]]
///          + session * (mean of the best session_top scores among the candidates of session[i]).
/// previous and next are positions in these arrays or -1; session is any code, or negative for none.
void smooth(ScoreSpan scores, OrdinalSpan previous, OrdinalSpan next, OrdinalSpan session,
            const SmoothWeights& weights, std::span<double> out);

/// The best min(k, size) by (score descending, ordinal ascending).
Ranked top(OrdinalSpan ordinals, ScoreSpan scores, std::size_t k);

/// Where each of `wanted` stands first in a list, -1 for nowhere; `wanted` are few.
void places(OrdinalSpan list, OrdinalSpan wanted, std::span<std::int64_t> out);

}  // namespace twofold
