#include "twofold/turns.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

namespace twofold {
namespace {

using Rows = std::vector<std::int64_t>;

void sort_unique(Rows& rows) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
}

/// hint: where it stands if no other row lies between, as in most conversations.
std::int64_t place_of(const Rows& ordinals, std::int64_t row, std::size_t hint) {
    if (row < 0) return -1;
    if (hint < ordinals.size() && ordinals[hint] == row) return static_cast<std::int64_t>(hint);
    const auto at = std::lower_bound(ordinals.begin(), ordinals.end(), row);
    return at != ordinals.end() && *at == row ? at - ordinals.begin() : -1;
}

template <class T>
T read(std::span<const T> column, std::int64_t row) {
    return column[static_cast<std::size_t>(row)];
}

void check_column(std::size_t size, const Rows& ordinals, const char* name) {
    if (!ordinals.empty() && static_cast<std::size_t>(ordinals.back()) >= size) {
        throw std::out_of_range(std::string(name) + " has " + std::to_string(size) + " rows, row " +
                                std::to_string(ordinals.back()) + " is asked");
    }
}

}  // namespace

Pool collect(std::span<const std::span<const std::int64_t>> lists, std::span<const std::int64_t> previous,
             std::span<const std::int64_t> next, std::span<const std::uint8_t> mask, std::size_t reach) {
    if (previous.size() != next.size()) throw std::invalid_argument("previous and next differ in length");
    Rows rows;
    for (const auto list : lists) rows.insert(rows.end(), list.begin(), list.end());
    sort_unique(rows);
    if (!rows.empty() && (rows.front() < 0 || static_cast<std::size_t>(rows.back()) >= previous.size())) {
        throw std::out_of_range("a row lies outside the columns");
    }
    const auto allowed = [&](std::int64_t row) {
        return row >= 0 && static_cast<std::size_t>(row) < mask.size() &&
               mask[static_cast<std::size_t>(row)] != 0;
    };
    Pool pool;
    pool.ordinals = rows;
    Rows frontier = rows;
    for (std::size_t step = 0; step < reach; ++step) {
        Rows around;
        for (const std::int64_t row : frontier) {
            for (const std::int64_t near : {read(previous, row), read(next, row)}) {
                if (allowed(near)) around.push_back(near);
            }
        }
        sort_unique(around);
        frontier.clear();
        std::set_difference(around.begin(), around.end(), pool.ordinals.begin(), pool.ordinals.end(),
                            std::back_inserter(frontier));
        Rows merged;
        merged.reserve(pool.ordinals.size() + frontier.size());
        std::merge(pool.ordinals.begin(), pool.ordinals.end(), frontier.begin(), frontier.end(),
                   std::back_inserter(merged));
        pool.ordinals = std::move(merged);
    }
    pool.chosen.reserve(rows.size());
    std::size_t at = 0;
    for (const std::int64_t row : rows) {
        while (pool.ordinals[at] != row) ++at;
        pool.chosen.push_back(static_cast<std::int64_t>(at));
    }
    pool.previous.reserve(pool.ordinals.size());
    pool.next.reserve(pool.ordinals.size());
    for (std::size_t p = 0; p < pool.ordinals.size(); ++p) {
        const std::int64_t row = pool.ordinals[p];
        pool.previous.push_back(place_of(pool.ordinals, read(previous, row), p - 1));
        pool.next.push_back(place_of(pool.ordinals, read(next, row), p + 1));
    }
    return pool;
}

std::vector<double> turn_terms(const Pool& pool, std::span<const double> base,
                               std::span<const std::int32_t> tokens, std::span<const std::uint8_t> asks,
                               std::span<const std::uint8_t> has_role, const TurnWeights& weights) {
    if (base.size() != pool.ordinals.size()) throw std::invalid_argument("base has not one score per place");
    check_column(tokens.size(), pool.ordinals, "tokens");
    check_column(asks.size(), pool.ordinals, "asks");
    check_column(has_role.size(), pool.ordinals, "has_role");
    const auto score = [&](std::int64_t place) { return place < 0 ? 0.0 : read(base, place); };
    const auto step = [](const Rows& links, std::int64_t place) {
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

std::vector<double> session_terms(const Pool& pool, std::span<const double> base,
                                  std::span<const std::int64_t> sessions, double weight, std::size_t top) {
    if (base.size() != pool.ordinals.size()) throw std::invalid_argument("base has not one score per place");
    if (top == 0) throw std::invalid_argument("top must be at least 1");
    check_column(sessions.size(), pool.ordinals, "sessions");
    struct Item {
        std::int64_t session;
        double value;
        std::size_t at;
    };
    std::vector<Item> items;
    items.reserve(pool.chosen.size());
    for (std::size_t i = 0; i < pool.chosen.size(); ++i) {
        const std::int64_t place = pool.chosen[i];
        items.push_back({read(sessions, pool.ordinals[static_cast<std::size_t>(place)]),
                         std::max(read(base, place), 0.0), i});
    }
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        if (a.session != b.session) return a.session < b.session;
        if (a.value != b.value) return a.value > b.value;
        return a.at < b.at;
    });
    std::vector<double> out(pool.chosen.size(), 0.0);
    for (std::size_t begin = 0; begin < items.size();) {
        std::size_t end = begin;
        while (end < items.size() && items[end].session == items[begin].session) ++end;
        if (items[begin].session >= 0) {
            double total = 0.0;
            for (std::size_t i = begin; i < std::min(end, begin + top); ++i) total += items[i].value;
            const double term = weight * (total / static_cast<double>(top));
            for (std::size_t i = begin; i < end; ++i) out[items[i].at] = term;
        }
        begin = end;
    }
    return out;
}

}  // namespace twofold
