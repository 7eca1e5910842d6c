#include <doctest/doctest.h>

#include <array>
#include <stdexcept>

#include "twofold/turns.hpp"

using namespace twofold;
using Rows = std::vector<std::int64_t>;

namespace {

// Two sessions of four turns: 0-3 and 4-7.
const Rows kPrevious{-1, 0, 1, 2, -1, 4, 5, 6};
const Rows kNext{1, 2, 3, -1, 5, 6, 7, -1};

Pool collected(const Rows& list, const std::vector<std::uint8_t>& mask, std::size_t reach) {
    const std::array<std::span<const std::int64_t>, 1> lists{list};
    return collect(lists, kPrevious, kNext, mask, reach);
}

}  // namespace

TEST_CASE("collect takes the turns around, as far as it may look") {
    const std::vector<std::uint8_t> all(8, 1);
    const Pool near = collected({6, 1}, all, 1);
    CHECK(near.ordinals == Rows{0, 1, 2, 5, 6, 7});
    CHECK(near.chosen == Rows{1, 4});
    CHECK(near.previous == Rows{-1, 0, 1, -1, 3, 4});
    CHECK(near.next == Rows{1, 2, -1, 4, 5, -1});
    CHECK(collected({1}, all, 2).ordinals == Rows{0, 1, 2, 3});
    CHECK(collected({1}, all, 0).ordinals == Rows{1});
    CHECK(collected({}, all, 2).ordinals.empty());
    CHECK(collected({1}, {1, 1, 0, 1, 1, 1, 1, 1}, 2).ordinals == Rows{0, 1});
    CHECK(collected({6}, {1, 1, 1, 1, 1, 1, 1}, 1).ordinals == Rows{5, 6});  // row 7 is beyond the prefix
    CHECK_THROWS_AS(collected({8}, all, 1), std::out_of_range);
    CHECK_THROWS_AS(collected({-1}, all, 1), std::out_of_range);
}

TEST_CASE("turn terms weigh neighbours, answers and roles, and gate long turns") {
    const std::vector<std::uint8_t> all(8, 1);
    const Pool pool = collected({2, 6}, all, 2);
    REQUIRE(pool.ordinals == Rows{0, 1, 2, 3, 4, 5, 6, 7});
    const std::vector<double> base{1, 2, 4, 8, 16, 32, 64, 128};
    std::vector<std::int32_t> tokens(8, 10);
    std::vector<std::uint8_t> asks(8, 0);
    std::vector<std::uint8_t> role(8, 0);
    const TurnWeights weights{0.5, 0.25, 0.125, 1.0, 2.0, 0.75, 40.0};
    auto out = turn_terms(pool, base, tokens, asks, role, weights);
    CHECK(out == std::vector<double>{0.5 * 2 + 0.25 * 8 + 0.125 * 1, 0.5 * 32 + 0.25 * 128 + 0.125 * 16});
    asks[1] = 1;
    tokens[6] = 80;
    role[6] = 1;
    out = turn_terms(pool, base, tokens, asks, role, weights);
    CHECK(out == std::vector<double>{0.5 * 2 + 0.25 * 8 + 0.125 * 1 + 2.0 * 2, 0.5 * (0.75 * 128)});
    CHECK_THROWS_AS(turn_terms(pool, {base.data(), 7}, tokens, asks, role, weights), std::invalid_argument);
    CHECK_THROWS_AS(turn_terms(pool, base, {tokens.data(), 7}, asks, role, weights), std::out_of_range);
}

TEST_CASE("session terms average the best of each session") {
    const std::vector<std::uint8_t> all(8, 1);
    const Pool pool = collected({0, 1, 2, 4}, all, 0);
    const std::vector<double> base{3, -1, 6, 9};
    const Rows sessions{5, 5, 5, 5, -1, -1, -1, -1};
    CHECK(session_terms(pool, base, sessions, 2.0, 3) == std::vector<double>{6, 6, 6, 0});
    CHECK(session_terms(pool, base, sessions, 1.0, 1) == std::vector<double>{6, 6, 6, 0});
    CHECK_THROWS_AS(session_terms(pool, base, sessions, 1.0, 0), std::invalid_argument);
}
