#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

#include "twofold/blend.hpp"

using namespace twofold;
using Numbers = std::vector<double>;
using Places = std::vector<std::int64_t>;

TEST_CASE("exact_sum rounds once") {
    CHECK(exact_sum({}) == 0.0);
    CHECK(exact_sum(Numbers{1e16, 1.0, -1e16}) == 1.0);
    CHECK(exact_sum(Numbers(10, 0.1)) == 1.0);
    CHECK(exact_sum(Numbers{1.0, 0x1p-53, 0x1p-106}) == 1.0 + 0x1p-52);  // just above a tie
    CHECK(exact_sum(Numbers{1.0, 0x1p-53, -0x1p-106}) == 1.0);
}

TEST_CASE("relevance sets its zeros by the candidates") {
    const Places chosen{0, 2};
    const Numbers lexical{1.0, 8.0, 2.0};
    const Numbers cosine{0.25, 1.0, 0.75};
    const auto plain = relevance(chosen, lexical, cosine, nullptr, {0.5, 2.0, 0.0, 0.0, 1.0});
    CHECK(plain.lexical == Numbers{0.25, 2.0, 0.5});
    CHECK(plain.cosine == Numbers{-0.5, 1.0, 0.5});
    CHECK(plain.late.empty());
    const std::vector<std::uint8_t> coded{0, 1, 1};
    const Places known{1};
    const Numbers similarity{0.5};
    const LateFound late{coded, known, similarity};
    const auto coded_too = relevance(chosen, lexical, cosine, &late, {0.0, 2.0, 4.0, 1.0, 1.0});
    CHECK(coded_too.lexical.empty());
    CHECK(coded_too.cosine == Numbers{-0.5, 2.0, 1.0});
    CHECK(coded_too.late == Numbers{0.0, 0.0, 0.0});
    CHECK_THROWS_AS(relevance(Places{3}, lexical, cosine, nullptr, {}), std::out_of_range);
    CHECK_THROWS_AS(relevance(chosen, lexical, {}, nullptr, {}), std::invalid_argument);
}

TEST_CASE("blend adds in order and breaks ties by candidate") {
    const Numbers a{1.0, 3.0, 1.0}, b{1.0, -1.0, 1.5};
    const std::vector<std::span<const double>> addends{a, b};
    Numbers sums(3);
    CHECK(blend(addends, sums) == Places{2, 0, 1});
    CHECK(sums == Numbers{2.0, 2.0, 2.5});
    Numbers two(2);
    CHECK_THROWS_AS(blend(addends, two), std::invalid_argument);
}
