#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "bits.hpp"
#include "kernels/kernel.hpp"
#include "twofold/bits.hpp"

using namespace twofold;
using Words = std::vector<std::uint64_t>;
using Rows = std::vector<std::int64_t>;

TEST_CASE("bits_maxsim takes the nearest code of each query code, weighted") {
    const Words query{0, ~0ULL};           // two codes of 64 bits
    const Words codes{0xFF, ~0ULL, 0x0F};  // 8, 64, 4 bits away from the first
    const std::vector<double> weights{1.0, 3.0};
    const Rows starts{0, 1, 3, 0};
    const Rows stops{1, 3, 3, 3};
    const auto out = bits_maxsim(query, weights, codes, 1, starts, stops);
    REQUIRE(out.size() == 4);
    CHECK(out[0] == (1.0 * (64 - 2 * 8) + 3.0 * (64 - 2 * 56)) / (64 * 4.0));
    CHECK(out[1] == (1.0 * (64 - 2 * 4) + 3.0 * 64) / (64 * 4.0));
    CHECK(out[2] == 0.0);
    CHECK(out[3] == out[1]);
    CHECK(bits_maxsim(query, std::vector<double>{0.0, 0.0}, codes, 1, starts, stops) ==
          std::vector<double>(4, 0.0));
    CHECK(bits_maxsim({}, {}, codes, 1, starts, stops) == std::vector<double>(4, 0.0));
}

TEST_CASE("every kernel counts the same bits") {
    using kernels::kBitQueries;
    bits::Random random(7);
    constexpr std::size_t kTiles = 2;
    for (const std::size_t words : {1UL, 2UL, 6UL, 7UL, 12UL, 31UL, 40UL, 64UL}) {
        for (const std::size_t count : {1UL, 2UL, 37UL}) {
            Words codes(count * words);
            Words queries(kTiles * kBitQueries * words);
            for (auto* list : {&codes, &queries}) {
                for (auto& word : *list) word = random.next() << 33 ^ random.next() << 11 ^ random.next();
            }
            for (std::size_t w = 0; w < words; ++w) queries[w * kBitQueries] = ~codes[w];  // as far as can be
            Words expected(kTiles * kBitQueries, ~0ULL);
            for (std::size_t q = 0; q < kTiles * kBitQueries; ++q) {
                for (std::size_t c = 0; c < count; ++c) {
                    std::uint64_t distance = 0;
                    for (std::size_t w = 0; w < words; ++w) {
                        const std::uint64_t word =
                            queries[(q / kBitQueries * words + w) * kBitQueries + q % kBitQueries];
                        distance += static_cast<std::uint64_t>(std::popcount(word ^ codes[c * words + w]));
                    }
                    expected[q] = std::min(expected[q], distance);
                }
            }
            if (count == 1) CHECK(expected[0] == 64 * words);
            for (const auto* level = kernels::supported(); *level != nullptr; ++level) {
                Words nearest(kTiles * kBitQueries, 0);
                (*level)->nearest_bits(queries.data(), kTiles, codes.data(), count, words, nearest.data());
                CHECK(nearest == expected);
            }
        }
    }
}

TEST_CASE("bits_maxsim refuses what does not fit") {
    const Words one{0};
    const std::vector<double> weight{1.0};
    const Rows zero{0};
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 0, zero, zero), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(one, {}, one, 1, zero, zero), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 1, zero, {}), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(Words{0, 0}, weight, one, 2, zero, zero), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(one, std::vector<double>{-1.0}, one, 1, zero, zero), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 1, zero, zero, "none"), std::invalid_argument);
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 1, zero, Rows{2}), std::out_of_range);
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 1, Rows{1}, zero), std::out_of_range);
    CHECK_THROWS_AS(bits_maxsim(one, weight, one, 1, Rows{-1}, zero), std::out_of_range);
}

TEST_CASE("rarity is BM25's") {
    const auto out = rarity(Rows{0, 3, 20}, 10.0);
    CHECK(std::abs(out[0] - std::log(1.0 + 10.5 / 0.5)) < 1e-15);
    CHECK(std::abs(out[1] - std::log(1.0 + 7.5 / 3.5)) < 1e-15);
    CHECK(std::abs(out[2] - std::log(1.0 + 0.5 / 10.5)) < 1e-15);
    CHECK_THROWS_AS(rarity(Rows{-1}, 1.0), std::invalid_argument);
    CHECK_THROWS_AS(rarity(Rows{1}, -1.0), std::invalid_argument);
}
