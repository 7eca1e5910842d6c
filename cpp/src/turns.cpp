#include "twofold/turns.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "slots.hpp"

namespace twofold {
namespace {

using Rows = std::vector<std::int64_t>;

/// A set of rows that tells the rank of each: the rows that pass are few, the words of their bits fewer
/// still.
class RowSet {
  public:
    explicit RowSet(std::size_t size) : words_((size + 63) / 64, 0), before_(words_.size(), 0) {}
    bool has(std::size_t row) const { return (words_[row / 64] >> (row % 64) & 1U) != 0; }
    void add(std::size_t row) { words_[row / 64] |= std::uint64_t{1} << (row % 64); }

    /// Whether the row was added: it is not if `wanted` is false or the set has it.
    bool add_if(std::size_t row, bool wanted) {
        const std::uint64_t bit = std::uint64_t{wanted} << (row % 64);
        const std::uint64_t before = words_[row / 64];
        words_[row / 64] = before | bit;
        return (bit & ~before) != 0;
    }

    /// All rows, ascending; `place` is right until the next `add`.
    Rows rows() {
        Rows out;
        for (std::size_t w = 0; w < words_.size(); ++w) {
            before_[w] = static_cast<std::uint32_t>(out.size());
            for (std::uint64_t word = words_[w]; word != 0; word &= word - 1) {
                out.push_back(
                    static_cast<std::int64_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
            }
        }
        return out;
    }

    std::int64_t place(std::size_t row) const {
        const std::uint64_t below = words_[row / 64] & ((std::uint64_t{1} << (row % 64)) - 1);
        return before_[row / 64] + std::popcount(below);
    }

  private:
    std::vector<std::uint64_t> words_;
    std::vector<std::uint32_t> before_;
};

template <class T>
T read(std::span<const T> column, std::int64_t row) {
    return column[static_cast<std::size_t>(row)];
}

void check_column(std::size_t size, std::span<const std::int64_t> ordinals, const char* name) {
    if (!ordinals.empty() && static_cast<std::size_t>(ordinals.back()) >= size) {
        throw std::out_of_range(std::string(name) + " has " + std::to_string(size) + " rows, row " +
                                std::to_string(ordinals.back()) + " is asked");
    }
}

}  // namespace

Pool collect(std::span<const std::span<const std::int64_t>> lists, std::span<const std::int64_t> previous,
             std::span<const std::int64_t> next, std::span<const std::uint8_t> mask, std::size_t reach) {
    if (previous.size() != next.size()) throw std::invalid_argument("previous and next differ in length");
    const std::size_t size = previous.size();
    const auto inside = [size](std::int64_t row) { return row >= 0 && static_cast<std::size_t>(row) < size; };
    RowSet set(size);
    for (const auto list : lists) {
        for (const std::int64_t row : list) {
            if (!inside(row)) throw std::out_of_range("a row lies outside the columns");
            set.add(static_cast<std::size_t>(row));
        }
    }
    const Rows rows = set.rows();
    Rows frontier = rows;
    const std::size_t visible = std::min(mask.size(), size);
    for (std::size_t step = 0; step < reach && visible > 0; ++step) {
        // Without branches on data: whether a neighbour is new is as good as random, and there are thousands.
        Rows further(2 * frontier.size());
        std::size_t found = 0;
        for (const std::int64_t row : frontier) {
            for (const std::int64_t near : {read(previous, row), read(next, row)}) {
                const bool reached = near >= 0 && static_cast<std::size_t>(near) < visible;
                const std::size_t at = reached ? static_cast<std::size_t>(near) : 0;
                further[found] = near;
                found += static_cast<std::size_t>(set.add_if(at, reached && mask[at] != 0));
            }
        }
        further.resize(found);
        frontier = std::move(further);
    }
    Pool pool;
    pool.ordinals = set.rows();
    const auto place_of = [&](std::int64_t row) {
        const auto at = static_cast<std::size_t>(row);
        return inside(row) && set.has(at) ? set.place(at) : -1;
    };
    const std::size_t places = pool.ordinals.size();
    pool.chosen.resize(rows.size());
    pool.previous.resize(places);
    pool.next.resize(places);
    // Turns of a session mostly stand one after another, in the log and so in the pool: look there first.
    std::size_t number = 0;
    for (std::size_t p = 0; p < places; ++p) {
        const std::int64_t row = pool.ordinals[p];
        if (number < rows.size() && rows[number] == row) pool.chosen[number++] = static_cast<std::int64_t>(p);
        const std::int64_t before = read(previous, row);
        const std::int64_t after = read(next, row);
        const bool follows = p > 0 && pool.ordinals[p - 1] == before;
        const bool leads = p + 1 < places && pool.ordinals[p + 1] == after;
        pool.previous[p] = follows ? static_cast<std::int64_t>(p) - 1 : before < 0 ? -1 : place_of(before);
        pool.next[p] = leads ? static_cast<std::int64_t>(p) + 1 : after < 0 ? -1 : place_of(after);
    }
    return pool;
}

std::vector<double> turn_terms(const PoolView& pool, std::span<const double> base,
                               std::span<const std::int32_t> tokens, std::span<const std::uint8_t> asks,
                               std::span<const std::uint8_t> has_role, const TurnWeights& weights) {
    if (base.size() != pool.ordinals.size()) throw std::invalid_argument("base has not one score per place");
    check_column(tokens.size(), pool.ordinals, "tokens");
    check_column(asks.size(), pool.ordinals, "asks");
    check_column(has_role.size(), pool.ordinals, "has_role");
    const auto score = [&](std::int64_t place) { return place < 0 ? 0.0 : read(base, place); };
    const auto step = [](std::span<const std::int64_t> links, std::int64_t place) {
        return place < 0 ? -1 : links[static_cast<std::size_t>(place)];
    };
    std::vector<double> out;
    out.reserve(pool.chosen.size());
    for (const std::int64_t place : pool.chosen) {
        const std::int64_t row = pool.ordinals[static_cast<std::size_t>(place)];
        const std::int64_t before = step(pool.previous, place);
        const std::int64_t after = step(pool.next, place);
        double term;
        if (read(has_role, row) != 0) {
            term = weights.role_next * score(after);
        } else {
            const bool asked =
                before >= 0 && read(asks, pool.ordinals[static_cast<std::size_t>(before)]) != 0;
            term = weights.previous * score(before) + weights.next * score(after) +
                   weights.second_previous * score(step(pool.previous, before)) +
                   weights.second_next * score(step(pool.next, after)) +
                   (asked ? weights.answer * score(before) : 0.0);
        }
        const double size = static_cast<double>(std::max(read(tokens, row), 1));
        out.push_back(std::min(1.0, weights.gate / size) * term);
    }
    return out;
}

std::vector<double> session_terms(const PoolView& pool, std::span<const double> base,
                                  std::span<const std::int64_t> sessions, double weight, std::size_t top) {
    if (base.size() != pool.ordinals.size()) throw std::invalid_argument("base has not one score per place");
    if (top == 0) throw std::invalid_argument("top must be at least 1");
    check_column(sessions.size(), pool.ordinals, "sessions");
    detail::Grouped groups(pool.chosen.size(), [&](std::size_t i) {
        return read(sessions, pool.ordinals[static_cast<std::size_t>(pool.chosen[i])]);
    });
    std::vector<double> out(pool.chosen.size(), 0.0);
    std::vector<double> values;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const auto members = groups.group(g);
        values.clear();
        for (const std::uint32_t i : members) values.push_back(std::max(read(base, pool.chosen[i]), 0.0));
        const auto most = values.begin() + static_cast<std::ptrdiff_t>(std::min(top, values.size()));
        std::partial_sort(values.begin(), most, values.end(), std::greater<>());
        double total = 0.0;
        for (auto value = values.begin(); value != most; ++value) total += *value;
        const double term = weight * (total / static_cast<double>(top));
        for (const std::uint32_t i : members) out[i] = term;
    }
    return out;
}

}  // namespace twofold
