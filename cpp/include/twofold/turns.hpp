// Conversation context of candidates: their neighbour turns and their session. Sums run in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace twofold {

/// The union of lists of rows with the rows up to `reach` turns before and after, ascending.
/// chosen[i] is the place of the i-th row of the union; previous[p] and next[p] are the places of the
/// neighbours of place p, -1 at the end of a session or where the neighbour was not collected.
struct Pool {
    std::vector<std::int64_t> ordinals;
    std::vector<std::int64_t> chosen;
    std::vector<std::int64_t> previous;
    std::vector<std::int64_t> next;
};

/// The same, where somebody else keeps the arrays.
struct PoolView {
    PoolView(const Pool& pool)  // NOLINT: every pool can be looked into
        : ordinals(pool.ordinals), chosen(pool.chosen), previous(pool.previous), next(pool.next) {}
    PoolView(std::span<const std::int64_t> ordinals_, std::span<const std::int64_t> chosen_,
             std::span<const std::int64_t> previous_, std::span<const std::int64_t> next_)
        : ordinals(ordinals_), chosen(chosen_), previous(previous_), next(next_) {}

    std::span<const std::int64_t> ordinals;
    std::span<const std::int64_t> chosen;
    std::span<const std::int64_t> previous;
    std::span<const std::int64_t> next;
};

/// previous and next hold a row's neighbours, -1 for none; only neighbours below mask.size() whose mask is
/// set are collected. Rows of the lists must lie in [0, previous.size()); throws std::out_of_range otherwise.
Pool collect(std::span<const std::span<const std::int64_t>> lists, std::span<const std::int64_t> previous,
             std::span<const std::int64_t> next, std::span<const std::uint8_t> mask, std::size_t reach);

struct TurnWeights {
    double previous;
    double next;
    double second_previous;
    double second_next;
    double answer;     ///< of the turn before, where that one ends with a question
    double role_next;  ///< of the next turn, instead of the five above, where the row has a role
    double gate;       ///< a row of more tokens than this borrows gate / tokens of the sum
};

/// What the turns around each chosen row add to it. base has a score per place of the pool; tokens, asks and
/// has_role are read at the rows of the pool.
std::vector<double> turn_terms(const PoolView& pool, std::span<const double> base,
                               std::span<const std::int32_t> tokens, std::span<const std::uint8_t> asks,
                               std::span<const std::uint8_t> has_role, const TurnWeights& weights);

/// weight * (sum of the `top` best max(base, 0) among the chosen rows of a row's session) / top;
/// 0 where the session code is negative. sessions is read at the rows of the pool.
std::vector<double> session_terms(const PoolView& pool, std::span<const double> base,
                                  std::span<const std::int64_t> sessions, double weight, std::size_t top);

}  // namespace twofold
