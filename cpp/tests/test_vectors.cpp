#include "twofold/vectors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using twofold::Hit;
using twofold::RowFilter;
using twofold::VectorIndex;
using Floats = std::vector<float>;

/// splitmix64: the standard distributions differ between libraries, and the hashes below must not.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-52 - 1.0; }  // [-1, 1)

  private:
    std::uint64_t state_;
};

void normalise(float* row, std::size_t dim) {
    double square = 0.0;
    for (std::size_t i = 0; i < dim; ++i) square += double{row[i]} * double{row[i]};
    if (square == 0.0) {
        row[0] = 1.0F;
        return;
    }
    for (std::size_t i = 0; i < dim; ++i) row[i] = static_cast<float>(double{row[i]} / std::sqrt(square));
}

Floats random_rows(Random& random, std::size_t count, std::size_t dim) {
    Floats rows(count * dim);
    for (float& value : rows) value = static_cast<float>(random.uniform());
    for (std::size_t i = 0; i < count; ++i) normalise(&rows[i * dim], dim);
    return rows;
}

/// The specification of a score: 32 lanes, product then sum, folded in halves.
float lane_score(const float* row, const float* query, std::size_t dim) {
    float lanes[32] = {};
    for (std::size_t i = 0; i < dim; ++i) {
        const float product = row[i] * query[i];
        lanes[i % 32] = lanes[i % 32] + product;
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
        for (std::size_t j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
    }
    return lanes[0];
}

template <class Passes>
std::vector<Hit> brute_force(const Floats& rows, const float* query, std::size_t dim, std::size_t k,
                             Passes passes) {
    std::vector<Hit> hits;
    for (std::size_t i = 0; i < rows.size() / dim; ++i) {
        if (passes(i))
            hits.push_back({lane_score(&rows[i * dim], query, dim), static_cast<std::uint32_t>(i)});
    }
    std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) {
        return a.score != b.score ? a.score > b.score : a.ordinal < b.ordinal;
    });
    if (hits.size() > k) hits.resize(k);
    return hits;
}

bool same(const std::vector<Hit>& a, const std::vector<Hit>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i].ordinal != b[i].ordinal) return false;
        if (std::bit_cast<std::uint32_t>(a[i].score) != std::bit_cast<std::uint32_t>(b[i].score))
            return false;
    }
    return true;
}

bool everything(std::size_t) {
    return true;
}

/// Both the single and the several-query path against brute force, at small, usual and too large k.
void check_exact(const Floats& rows, const Floats& queries, std::size_t dim) {
    VectorIndex index(dim);
    index.add(rows);
    const std::size_t count = rows.size() / dim;
    for (const std::size_t k : {std::size_t{1}, std::size_t{10}, count + 7}) {
        const std::vector<Hit> together = index.search(queries, k);
        const std::size_t m = std::min(k, count);
        REQUIRE(together.size() == m * (queries.size() / dim));
        for (std::size_t q = 0; q < queries.size() / dim; ++q) {
            const float* query = &queries[q * dim];
            const std::vector<Hit> expected = brute_force(rows, query, dim, k, everything);
            CHECK(same(index.search({query, dim}, k), expected));
            const auto begin = together.begin() + static_cast<std::ptrdiff_t>(q * m);
            CHECK(same({begin, begin + static_cast<std::ptrdiff_t>(m)}, expected));
        }
    }
}

std::uint64_t fnv(const void* data, std::size_t size, std::uint64_t hash) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3U;
    return hash;
}

constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325U;

std::string failure(const auto& action) {
    try {
        action();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("the level is the one the environment asks for") {
    const char* wanted = std::getenv("TWOFOLD_KERNEL");
    if (wanted != nullptr) CHECK(twofold::kernel_name() == wanted);
    const auto names = twofold::kernel_names();
    CHECK(std::find(names.begin(), names.end(), twofold::kernel_name()) != names.end());
    CHECK(names.back() == "generic");
    CHECK(failure([] { VectorIndex(8, "sse9"); }).find("sse9") != std::string::npos);
}

TEST_CASE("search is exact in every dimension") {
    std::vector<std::size_t> dims;
    for (std::size_t dim = 1; dim <= 70; ++dim) dims.push_back(dim);
    for (const std::size_t dim : {384, 768, 1024, 1536, 3072, 4096}) dims.push_back(dim);
    for (const std::size_t dim : dims) {
        CAPTURE(dim);
        Random random(dim);
        const std::size_t count = dim < 100 ? 300 + random.below(300) : 150;
        check_exact(random_rows(random, count, dim), random_rows(random, 1 + random.below(10), dim), dim);
    }
}

TEST_CASE("search is exact on adversarial rows") {
    constexpr std::size_t kDim = 48;
    constexpr std::size_t kCount = 1200;
    Random random(7);
    const Floats queries = random_rows(random, 3, kDim);

    SUBCASE("duplicates keep the older row first") {
        const Floats few = random_rows(random, 5, kDim);
        Floats rows;
        for (std::size_t i = 0; i < kCount; ++i) {
            const auto source = few.begin() + static_cast<std::ptrdiff_t>(random.below(5) * kDim);
            rows.insert(rows.end(), source, source + kDim);
        }
        check_exact(rows, queries, kDim);
    }
    SUBCASE("near ties differ in single bits") {
        const Floats base = random_rows(random, 1, kDim);
        Floats rows;
        for (std::size_t i = 0; i < kCount; ++i) {
            Floats row = base;
            for (std::size_t j = 0; j < 3; ++j) {
                float& value = row[random.below(kDim)];
                value = std::nextafter(value, random.next() % 2 == 0 ? 2.0F : -2.0F);
            }
            rows.insert(rows.end(), row.begin(), row.end());
        }
        Floats near = queries;
        near.insert(near.end(), base.begin(), base.end());
        check_exact(rows, near, kDim);
    }
    SUBCASE("sparse rows and queries, many scores of exactly zero") {
        Floats rows(kCount * kDim, 0.0F);
        for (std::size_t i = 0; i < kCount; ++i) {
            rows[i * kDim + random.below(kDim)] = random.next() % 2 == 0 ? 1.0F : -1.0F;
            if (i % 3 == 0) rows[i * kDim + random.below(kDim)] = 0.25F;
            normalise(&rows[i * kDim], kDim);
        }
        Floats one_hot(kDim, 0.0F);
        one_hot[11] = 1.0F;
        one_hot.insert(one_hot.end(), queries.begin(), queries.end());
        check_exact(rows, one_hot, kDim);
    }
    SUBCASE("codes of zero: only the rows' residuals tell them apart") {
        Floats rows(kCount * kDim);
        for (std::size_t i = 0; i < kCount; ++i) {
            for (std::size_t j = 1; j < kDim; ++j)
                rows[i * kDim + j] = static_cast<float>(random.uniform() * 0.0038);
            rows[i * kDim] = 1.0F;
            normalise(&rows[i * kDim], kDim);
        }
        // Four equal values: this query has next to no residual of its own.
        Floats exact(kDim, 0.0F);
        for (const std::size_t j : {3, 20, 33, 47}) exact[j] = j % 2 == 0 ? 0.5F : -0.5F;
        Floats hidden = queries;
        for (std::size_t q = 0; q < 3; ++q) {
            hidden[q * kDim] = 0.0F;
            normalise(&hidden[q * kDim], kDim);
        }
        hidden.insert(hidden.end(), exact.begin(), exact.end());
        check_exact(rows, hidden, kDim);
    }
    SUBCASE("equal scores from codes of different scales") {
        constexpr std::size_t kWide = 256;
        Floats rows(kCount * kWide, 0.0F);
        for (std::size_t i = 0; i < kCount; ++i) {
            const std::size_t ones = std::size_t{4} << (2 * random.below(4));  // 4, 16, 64 or 256
            const float value = static_cast<float>(1.0 / std::sqrt(static_cast<double>(ones)));
            for (std::size_t j = 0; j < ones; ++j) {
                rows[i * kWide + j * (kWide / ones)] =
                    j < 3 * ones / 4 || random.below(40) != 0 ? value : -value;
            }
        }
        Floats even(kWide, 0.0625F);
        for (std::size_t q = 0; q < 4; ++q)
            even.insert(even.end(), &rows[q * 7 * kWide], &rows[(q * 7 + 1) * kWide]);
        check_exact(rows, even, kWide);
    }
    SUBCASE("residuals of zero: codes are the rows") {
        Floats rows(kCount * kDim, 0.0F);
        for (std::size_t i = 0; i < kCount; ++i) {
            for (std::size_t j = 0; j < 16; ++j)
                rows[i * kDim + (j * 3 + i) % kDim] = random.next() % 2 == 0 ? 0.25F : -0.25F;
            normalise(&rows[i * kDim], kDim);
        }
        check_exact(rows, queries, kDim);
    }
    SUBCASE("tight clusters") {
        const Floats centres = random_rows(random, 4, kDim);
        Floats rows;
        for (std::size_t i = 0; i < kCount; ++i) {
            Floats row(centres.begin() + static_cast<std::ptrdiff_t>(i % 4 * kDim),
                       centres.begin() + static_cast<std::ptrdiff_t>((i % 4 + 1) * kDim));
            for (float& value : row) value += static_cast<float>(random.uniform() * 1e-4);
            normalise(row.data(), kDim);
            rows.insert(rows.end(), row.begin(), row.end());
        }
        Floats near(centres);
        near.insert(near.end(), queries.begin(), queries.end());
        check_exact(rows, near, kDim);
    }
    SUBCASE("the largest and smallest norms that pass") {
        Floats rows = random_rows(random, kCount, kDim);
        for (std::size_t i = 0; i < kCount; ++i) {
            const float factor = i % 2 == 0 ? 1.0009F : 0.9991F;
            for (std::size_t j = 0; j < kDim; ++j) rows[i * kDim + j] *= factor;
        }
        check_exact(rows, queries, kDim);
    }
    SUBCASE("values too small to square") {
        Floats rows = random_rows(random, kCount, kDim);
        for (std::size_t i = 0; i < kCount; ++i) {
            for (std::size_t j = 0; j < kDim; ++j) rows[i * kDim + j] *= j % 2 == 0 ? 1e-30F : 1e-42F;
            rows[i * kDim + i % 3] = 1.0F;
        }
        check_exact(rows, queries, kDim);
    }
}

TEST_CASE("masks, prefixes and erased rows combine") {
    for (const std::size_t dim : {std::size_t{3}, std::size_t{40}, std::size_t{384}}) {
        CAPTURE(dim);
        Random random(dim + 100);
        const std::size_t count = 1500;
        const Floats rows = random_rows(random, count, dim);
        const Floats queries = random_rows(random, 5, dim);
        VectorIndex index(dim);
        index.add(rows);
        std::vector<std::uint8_t> alive(count, 1);
        for (const std::size_t gone : {std::size_t{0}, std::size_t{200}, std::size_t{1100}}) {
            std::vector<std::int64_t> erased;
            for (std::size_t i = 0; i < gone; ++i)
                erased.push_back(static_cast<std::int64_t>(random.below(count)));
            index.erase(erased);
            for (const std::int64_t row : erased) alive[static_cast<std::size_t>(row)] = 0;
            for (const std::size_t percent : {0, 1, 10, 26, 50, 90, 100}) {
                std::vector<std::uint8_t> mask(count);
                // Any byte but 0 means yes.
                for (auto& flag : mask)
                    flag = random.below(100) < percent ? static_cast<std::uint8_t>(1 + random.below(255)) : 0;
                for (const std::size_t prefix : {std::size_t{0}, std::size_t{1}, std::size_t{777}, count}) {
                    for (const std::size_t k : {std::size_t{1}, std::size_t{10}, std::size_t{400}}) {
                        CAPTURE(percent);
                        CAPTURE(prefix);
                        const auto expected = [&](std::size_t q, bool masked) {
                            return brute_force(rows, &queries[q * dim], dim, k, [&](std::size_t i) {
                                return i < prefix && alive[i] != 0 && (!masked || mask[i] != 0);
                            });
                        };
                        const std::vector<Hit> first = expected(0, true);
                        std::vector<Hit> all;
                        for (std::size_t q = 0; q < 5; ++q) {
                            const std::vector<Hit> hits = expected(q, true);
                            all.insert(all.end(), hits.begin(), hits.end());
                        }
                        const std::span<const float> one(queries.data(), dim);
                        CHECK(same(index.search(one, k, {mask, prefix}), first));
                        CHECK(same(index.search(queries, k, {mask, prefix}), all));
                        CHECK(same(index.search(one, k, {std::span(mask).first(prefix), prefix}), first));
                        CHECK(same(index.search(one, k, {std::nullopt, prefix}), expected(0, false)));
                    }
                }
            }
        }
        std::vector<std::uint8_t> flags(count);
        index.alive(flags);
        CHECK(flags == alive);
    }
}

TEST_CASE("codes alone name candidates that include the answer") {
    for (const std::size_t dim : {std::size_t{1}, std::size_t{20}, std::size_t{48}, std::size_t{384}}) {
        CAPTURE(dim);
        Random random(dim + 200);
        const std::size_t count = 1200;
        Floats rows = random_rows(random, count, dim);
        std::copy(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(30 * dim),
                  rows.begin() + static_cast<std::ptrdiff_t>(600 * dim));
        const std::span<const float> query(&rows[3 * dim], dim);
        VectorIndex index(dim, {}, false);
        index.add(rows);
        VectorIndex whole(dim);
        whole.add(rows);
        CHECK(whole.nbytes() - index.nbytes() >= count * dim * sizeof(float));
        std::vector<std::uint8_t> mask(count);
        for (auto& flag : mask) flag = static_cast<std::uint8_t>(random.below(20) == 0);
        index.erase(std::vector<std::int64_t>{7, 900});
        for (const std::size_t k : {std::size_t{1}, std::size_t{10}, std::size_t{2000}}) {
            for (const bool masked : {false, true}) {
                RowFilter filter;
                if (masked) filter.mask = mask;
                const auto passes = [&](std::size_t i) {
                    return i != 7 && i != 900 && (!masked || mask[i] != 0);
                };
                const auto ordinals = index.candidates(query, k, filter);
                CHECK(std::is_sorted(ordinals.begin(), ordinals.end()));
                if (k == 1 && !masked && dim == 384) CHECK(ordinals.size() < count / 10);
                Floats some;
                for (const std::uint32_t row : ordinals) {
                    CHECK(passes(row));
                    some.insert(some.end(), &rows[row * dim], &rows[row * dim] + dim);
                }
                Floats scores(ordinals.size());
                twofold::score_rows(query, some, scores);
                std::vector<Hit> hits;
                for (std::size_t i = 0; i < ordinals.size(); ++i) hits.push_back({scores[i], ordinals[i]});
                twofold::keep_best(hits, k);
                CHECK(same(hits, brute_force(rows, query.data(), dim, k, passes)));
            }
        }
        CHECK(index.candidates(query, 0).empty());
        CHECK_THROWS_AS(static_cast<void>(index.search(query, 1)), std::invalid_argument);
        Floats out(dim);
        const std::vector<std::int64_t> first = {0};
        CHECK_THROWS_AS(index.rows(first, out), std::invalid_argument);
        CHECK_THROWS_AS(index.scores(query, first, {out.data(), 1}), std::invalid_argument);
    }
}

TEST_CASE("rows keep their place while segments grow") {
    constexpr std::size_t kDim = 5;
    Random random(3);
    const Floats rows = random_rows(random, 5000, kDim);
    VectorIndex index(kDim);
    for (std::size_t row = 0; row < 5000;) {
        const std::size_t count = std::min(1 + random.below(400), 5000 - row);
        CHECK(index.add({&rows[row * kDim], count * kDim}) == row);
        row += count;
        CHECK(index.size() == row);
    }
    std::vector<std::int64_t> ordinals;
    for (std::int64_t i = 4999; i >= 0; i -= 7) ordinals.push_back(i);
    Floats copy(ordinals.size() * kDim);
    index.rows(ordinals, copy);
    for (std::size_t i = 0; i < ordinals.size(); ++i) {
        CHECK(std::memcmp(&copy[i * kDim], &rows[static_cast<std::size_t>(ordinals[i]) * kDim], kDim * 4) ==
              0);
    }
    Floats scores(ordinals.size());
    index.scores({rows.data(), kDim}, ordinals, scores);
    for (std::size_t i = 0; i < ordinals.size(); ++i) {
        CHECK(scores[i] ==
              lane_score(&rows[static_cast<std::size_t>(ordinals[i]) * kDim], rows.data(), kDim));
    }
    CHECK(same(index.search({rows.data(), kDim}, 20), brute_force(rows, rows.data(), kDim, 20, everything)));
}

TEST_CASE("an erased row leaves nothing behind") {
    Random random(4);
    const Floats rows = random_rows(random, 40, 8);
    VectorIndex index(8);
    index.add(rows);
    const std::vector<std::int64_t> gone = {17, 17};
    index.erase(gone);
    index.erase(gone);
    Floats copy(8, 1.0F);
    index.rows({gone.data(), 1}, copy);
    CHECK(copy == Floats(8, 0.0F));
    Floats score(1, 1.0F);
    index.scores({rows.data(), 8}, {gone.data(), 1}, score);
    CHECK(score[0] == 0.0F);
    CHECK(index.size() == 40);
    CHECK(index.search({rows.data(), 8}, 100).size() == 39);
    CHECK(index.add({rows.data(), 8}) == 40);
}

TEST_CASE("a bad row adds nothing") {
    Random random(5);
    Floats rows = random_rows(random, 300, 16);
    VectorIndex index(16);
    index.add({rows.data(), 20 * 16});
    const Floats good = rows;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {nan, infinity, -infinity, 3.0F}) {
        rows = good;
        rows[299 * 16 + 5] = bad;
        CHECK(failure([&] { index.add(rows); }).find("row 299") != std::string::npos);
        CHECK(index.size() == 20);
    }
    rows = good;
    std::fill(rows.begin() + 7 * 16, rows.begin() + 8 * 16, 0.0F);
    CHECK(failure([&] { index.add(rows); }).find("row 7 ") != std::string::npos);
    CHECK(same(index.search({good.data(), 16}, 50),
               brute_force({good.begin(), good.begin() + 20 * 16}, good.data(), 16, 50, everything)));
    index.add(good);
    CHECK(index.size() == 320);
}

TEST_CASE("arguments out of range are refused") {
    CHECK_THROWS_AS(VectorIndex(0), std::invalid_argument);
    CHECK_THROWS_AS(VectorIndex(4097), std::invalid_argument);
    Random random(6);
    const Floats rows = random_rows(random, 10, 4);
    const Floats query = random_rows(random, 1, 4);
    VectorIndex index(4);
    CHECK(index.search(query, 5).empty());
    index.add(rows);
    CHECK(index.search(query, 0).empty());
    CHECK(index.search({}, 5).empty());
    CHECK_THROWS_AS(index.add({rows.data(), 3}), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(index.search({query.data(), 3}, 1)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(index.search(Floats(4, 0.0F), 1)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(index.search(query, 1, {std::nullopt, 11})), std::invalid_argument);
    const std::vector<std::uint8_t> mask(11, 1);
    CHECK_THROWS_AS(static_cast<void>(index.search(query, 1, {mask, std::nullopt})), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(index.search(query, 1, {std::span(mask).first(9), std::nullopt})),
                    std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(index.search(query, 1, {std::span(mask).first(4), 5})),
                    std::invalid_argument);
    const std::vector<std::int64_t> outside = {3, 10};
    const std::vector<std::int64_t> negative = {-1};
    CHECK_THROWS_AS(index.erase(outside), std::out_of_range);
    CHECK(index.search(query, 20).size() == 10);
    Floats scores(2);
    CHECK_THROWS_AS(index.scores(query, outside, scores), std::out_of_range);
    CHECK_THROWS_AS(index.erase(negative), std::out_of_range);
}

TEST_CASE("searches run beside each other and beside changes") {
    constexpr std::size_t kDim = 24;
    Random random(8);
    const Floats rows = random_rows(random, 2000, kDim);
    VectorIndex index(kDim);
    index.add({rows.data(), 500 * kDim});
    const std::span<const float> query(rows.data(), kDim);
    const std::vector<Hit> expected = index.search(query, 10);
    std::atomic<int> wrong = 0;
    const auto reader = [&] {
        for (int i = 0; i < 50; ++i) {
            if (!same(index.search(query, 10, {std::nullopt, 500}), expected)) ++wrong;
        }
    };
    std::thread first(reader);
    std::thread second(reader);
    for (std::size_t row = 500; row < 2000; row += 50) {
        index.add({&rows[row * kDim], 50 * kDim});
        const std::vector<std::int64_t> gone = {static_cast<std::int64_t>(row)};
        index.erase(gone);
    }
    first.join();
    second.join();
    CHECK(wrong == 0);
}

TEST_CASE("scores have the same bits on every level") {
    std::uint64_t hash = kFnvStart;
    for (const std::size_t dim : {1, 31, 48, 384, 1000, 1536}) {
        Random random(dim * 1000);
        VectorIndex index(dim);
        index.add(random_rows(random, 200, dim));
        for (const Hit& hit : index.search(random_rows(random, 3, dim), 200)) {
            hash = fnv(&hit.score, sizeof hit.score, hash);
            hash = fnv(&hit.ordinal, sizeof hit.ordinal, hash);
        }
    }
    CHECK(hash == 9652727613519039466U);
}

TEST_CASE("quantising rounds to the nearest code, ties to even") {
    const Floats rows = {127.0F,      -127.0F, 0.5F,   1.5F, -2.5F, 0.49F,
                         /**/ 0.0F,   0.0F,    0.0F,   0.0F, 0.0F,  0.0F,
                         /**/ 1e-40F, -1e-40F, 5e-41F, 0.0F, 0.0F,  0.0F};
    std::vector<std::int8_t> codes(18);
    Floats scales(3);
    twofold::quantize_rows(rows, codes, scales);
    const std::vector<std::int8_t> expected = {127, -127, 0, 2,   -2,   0,  0, 0, 0,
                                               0,   0,    0, 127, -127, 64, 0, 0, 0};
    CHECK(std::equal(codes.begin(), codes.begin() + 14, expected.begin()));
    CHECK(scales[0] == 1.0F);
    CHECK(scales[1] == 0.0F);
    Floats bad = rows;
    bad[8] = std::numeric_limits<float>::infinity();
    CHECK(failure([&] { twofold::quantize_rows(bad, codes, scales); }).find("row 1") != std::string::npos);
    Floats four(4);
    CHECK_THROWS_AS(twofold::quantize_rows(rows, codes, four), std::invalid_argument);
}

TEST_CASE("maxsim equals its definition on every level") {
    std::uint64_t hash = kFnvStart;
    for (const std::size_t dim : {1, 15, 16, 31, 33, 63, 64, 65, 100, 384}) {
        CAPTURE(dim);
        Random random(dim);
        const std::size_t query_count = 1 + random.below(12);
        const std::vector<std::int64_t> offsets = {0, 3, 3, 20, 21, 90};
        const auto codes = [&](std::size_t count, int smallest) {
            std::vector<std::int8_t> values(count * dim);
            for (auto& value : values) {
                // Mostly extremes: where a 16-bit sum would overflow, it does.
                const int extreme = random.next() % 2 == 0 ? 127 : smallest;
                value = static_cast<std::int8_t>(
                    random.below(3) != 0 ? extreme : static_cast<int>(random.below(255)) - 127);
            }
            return values;
        };
        const auto scales = [&](std::size_t count) {
            Floats values(count);
            for (float& value : values) value = static_cast<float>(std::fabs(random.uniform()) / 127.0);
            return values;
        };
        const auto query = codes(query_count, -127);
        const auto documents = codes(90, -128);
        const auto query_scales = scales(query_count);
        const auto document_scales = scales(90);
        std::vector<double> out(5);
        twofold::maxsim({query, query_scales}, {documents, document_scales}, offsets, out);
        for (std::size_t i = 0; i < 5; ++i) {
            double sum = 0.0;
            for (std::size_t q = 0; q < query_count && offsets[i] != offsets[i + 1]; ++q) {
                double best = -1e300;
                for (auto t = static_cast<std::size_t>(offsets[i]);
                     t < static_cast<std::size_t>(offsets[i + 1]); ++t) {
                    int dot = 0;
                    for (std::size_t j = 0; j < dim; ++j) dot += query[q * dim + j] * documents[t * dim + j];
                    best = std::max(best, dot * double{document_scales[t]});
                }
                sum += best * double{query_scales[q]};
            }
            CHECK(std::bit_cast<std::uint64_t>(out[i]) == std::bit_cast<std::uint64_t>(sum));
        }
        hash = fnv(out.data(), out.size() * sizeof(double), hash);
    }
    CHECK(hash == 14238587453088276160U);
}

TEST_CASE("maxsim refuses tokens that do not fit") {
    const std::vector<std::int8_t> two(8, 1);
    const Floats scales(2, 1.0F);
    std::vector<double> out(1);
    const auto run = [&](const std::vector<std::int8_t>& query, const Floats& query_scales,
                         const std::vector<std::int64_t>& offsets) {
        twofold::maxsim({query, query_scales}, {two, scales}, offsets, out);
    };
    run(two, scales, {0, 2});
    CHECK(out[0] == 8.0);
    run({}, {}, {0, 2});
    CHECK(out[0] == 0.0);
    CHECK_THROWS_AS(run(two, scales, {0, 3}), std::invalid_argument);
    CHECK_THROWS_AS(run(two, scales, {1, 0}), std::invalid_argument);
    CHECK_THROWS_AS(run(two, scales, {-1, 1}), std::invalid_argument);
    CHECK_THROWS_AS(run(two, scales, {0}), std::invalid_argument);
    CHECK_THROWS_AS(run(two, {1.0F, -1.0F}, {0, 2}), std::invalid_argument);
    CHECK_THROWS_AS(run(two, {1.0F, 1.0F, 1.0F}, {0, 2}), std::invalid_argument);
    CHECK_THROWS_AS(run({1, 1, -128, 1}, {1.0F}, {0, 2}), std::invalid_argument);
    CHECK_THROWS_AS(run({1, 1}, {1.0F}, {0, 2}), std::invalid_argument);
}
