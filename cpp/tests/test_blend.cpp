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

TEST_CASE("fuse adds in order, breaks ties by row and takes repeats of a session off") {
    const Places ordinals{2, 5, 7}, chosen{0, 1, 2}, none{-1, -1, -1};
    const PoolView pool(ordinals, chosen, none, none);
    const Numbers a{1.0, 3.0, 1.0}, b{1.0, -1.0, 1.5};
    const std::vector<std::span<const double>> relevance{a}, given{b};
    const Fused plain = fuse(pool, relevance, {}, nullptr, nullptr, given);
    CHECK(plain.rows == Places{7, 2, 5});
    CHECK(plain.scores == Numbers{2.5, 2.0, 2.0});
    CHECK(plain.addends == Numbers{1.0, 1.0, 3.0, 1.5, 1.0, -1.0});

    const Places sessions{-1, -1, 4, -1, -1, -1, -1, 4};
    const Numbers logs{0.0, 8.0, 16.0};
    const SessionColumns together{sessions, 0.0, 1, 0.5, logs};
    const Fused apart = fuse(pool, relevance, {}, nullptr, &together, given);
    CHECK(apart.rows == Places{7, 5, 2});
    CHECK(apart.scores == Numbers{2.5, 2.0, -2.0});

    const Places rows{5};
    const Numbers scores{4.0};
    const std::vector<SparseScores> layers{{rows, scores, 0.25}};
    CHECK(fuse(pool, relevance, layers, nullptr, nullptr, {}).scores == Numbers{4.0, 1.0, 1.0});
    const Places strange{6};
    const std::vector<SparseScores> wrong{{strange, scores, 0.25}};
    CHECK_THROWS_AS(fuse(pool, relevance, wrong, nullptr, nullptr, {}), std::out_of_range);
}

TEST_CASE("above_mean is of the groups' scores") {
    const Numbers scores{1.0, 4.0};
    const Places groups{0, 1, -1, 1}, rows{0, 1, 2, 3};
    CHECK(above_mean(scores, groups, rows) == Numbers{-0.5, 0.25, 0.0, 0.25});
    CHECK(above_mean(Numbers{0.0, 0.0}, groups, rows) == Numbers{0.0, 0.0, 0.0, 0.0});
    CHECK_THROWS_AS(above_mean(Numbers{1.0}, groups, rows), std::out_of_range);
}
