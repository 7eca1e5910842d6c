#include "twofold/pack.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <vector>

namespace {

using Positions = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("mmr trades relevance against closeness to what is chosen") {
    const std::vector<float> values = {1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1};
    const twofold::Rows rows{values, 3};
    const std::vector<double> relevance = {1.0, 0.9, 0.5, 0.5};
    CHECK(twofold::mmr(relevance, rows, 1.0, 4) == Positions{0, 1, 2, 3});
    CHECK(twofold::mmr(relevance, rows, 0.5, 4) == Positions{0, 2, 3, 1});
    CHECK(twofold::mmr(relevance, rows, 0.0, 2) == Positions{0, 2});
    CHECK(twofold::mmr(relevance, rows, 0.5, 0).empty());
    CHECK(twofold::mmr({}, twofold::Rows{{}, 3}, 0.5, 5).empty());
    CHECK_THROWS_AS(twofold::mmr(relevance, rows, 1.5, 4), std::invalid_argument);
    CHECK_THROWS_AS(twofold::mmr({}, rows, 0.5, 4), std::invalid_argument);
}

TEST_CASE("packing skips what does not fit and never passes the budget") {
    const Positions tokens = {5, 9, 3, 0};
    CHECK(twofold::pack(tokens, 8, 0) == Positions{0, 2, 3});
    CHECK(twofold::pack(tokens, 8, 1) == Positions{0, 3});
    CHECK(twofold::pack(tokens, 0, 0) == Positions{3});
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const Positions huge = {most, most};
    CHECK(twofold::pack(huge, most, 0) == Positions{0});
    CHECK_THROWS_AS(twofold::pack(huge, most, 1), std::invalid_argument);
    CHECK_THROWS_AS(twofold::pack(tokens, -1, 0), std::invalid_argument);
}

TEST_CASE("packing by value tries the densest first and answers in order") {
    const Positions tokens = {10, 4, 4, 0};
    const std::vector<double> values = {5.0, 4.0, 4.0, 0.0};
    CHECK(twofold::pack_value(tokens, values, 10, 0) == Positions{1, 2, 3});
    CHECK(twofold::pack_value(tokens, values, 5, 1) == Positions{1});
    CHECK(twofold::pack_value(tokens, values, 18, 0) == Positions{0, 1, 2, 3});
}

TEST_CASE("near duplicates point at the first kept row") {
    const std::vector<float> values = {1, 0, 0, 1, 1, 0, 0, 0, 0.8F, 0.6F};
    const twofold::Rows rows{values, 2};
    CHECK(twofold::near_duplicates(rows, 0.9) == Positions{-1, -1, 0, -1, -1});
    CHECK(twofold::near_duplicates(rows, 0.5) == Positions{-1, -1, 0, -1, 0});
    CHECK(twofold::near_duplicates(rows, 0.0) == Positions{-1, 0, 0, 0, 0});
}
