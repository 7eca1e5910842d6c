#include <doctest/doctest.h>
#include <stdio.h>

#include <cmath>
#include <thread>
#include <vector>

#include "twofold/names.hpp"
#include "twofold/vectors.hpp"

namespace {

using twofold::VectorIndex;

std::vector<float> unit_rows(std::size_t count, std::size_t dim, unsigned seed) {
    std::vector<float> rows(count * dim);
    for (std::size_t r = 0; r < count; ++r) {
        double square = 0.0;
        for (std::size_t i = 0; i < dim; ++i) {
            seed = seed * 1664525U + 1013904223U;
            const double value = static_cast<double>(seed >> 8) / 8388608.0 - 1.0;
            rows[r * dim + i] = static_cast<float>(value);
            square += value * value;
        }
        for (std::size_t i = 0; i < dim; ++i) {
            rows[r * dim + i] = static_cast<float>(rows[r * dim + i] / std::sqrt(square));
        }
    }
    return rows;
}

/// An index written to an anonymous file: codes, then rows.
struct Saved {
    explicit Saved(const VectorIndex& index) : file(tmpfile()), alive(index.size()) {
        REQUIRE(file != nullptr);
        for (std::size_t first = 0; first < index.size(); first += 256) {
            std::vector<std::uint8_t> codes(index.code_bytes(std::min<std::size_t>(256, index.size() - first)));
            index.copy_codes(first, codes);
            code_sums.push_back(twofold::checksum(codes));
            rows_at += codes.size();
            REQUIRE(fwrite(codes.data(), 1, codes.size(), file) == codes.size());
        }
        std::vector<float> row(index.dim());
        for (std::size_t i = 0; i < index.size(); ++i) {
            const std::int64_t ordinal = static_cast<std::int64_t>(i);
            index.rows({&ordinal, 1}, row);
            const auto* bytes = reinterpret_cast<const std::uint8_t*>(row.data());
            row_sums.push_back(twofold::checksum({bytes, row.size() * sizeof(float)}));
            REQUIRE(fwrite(row.data(), sizeof(float), row.size(), file) == row.size());
        }
        index.alive(alive);
        REQUIRE(fflush(file) == 0);
    }
    ~Saved() { fclose(file); }
    Saved(const Saved&) = delete;
    Saved& operator=(const Saved&) = delete;

    [[nodiscard]] twofold::Stored as(bool at_once, bool resident) const {
        return {fileno(file), alive.size(), at_once, resident, 0, code_sums, rows_at, row_sums, alive};
    }

    FILE* file;
    std::vector<std::uint8_t> alive;
    std::vector<std::uint64_t> code_sums;
    std::vector<std::uint64_t> row_sums;
    std::uint64_t rows_at = 0;
};

bool same(const std::vector<twofold::Hit>& a, const std::vector<twofold::Hit>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const twofold::Hit& x, const twofold::Hit& y) {
        return x.ordinal == y.ordinal && x.score == y.score;
    });
}

}  // namespace

TEST_CASE("an index taken from a file answers with the bits of the one that was written") {
    for (const std::size_t dim : {std::size_t{3}, std::size_t{16}, std::size_t{70}}) {
        VectorIndex plain(dim);
        plain.add(unit_rows(700, dim, 1));
        const std::vector<std::int64_t> erased = {0, 255, 256, 699};
        plain.erase(erased);
        const Saved saved(plain);
        const auto later = unit_rows(50, dim, 2);
        plain.add(later);
        const auto queries = unit_rows(20, dim, 3);
        for (const auto& [at_once, resident] : {std::pair{true, true}, {false, true}, {false, false}}) {
            VectorIndex index(dim);
            index.restore(saved.as(at_once, resident));
            CHECK(index.rows_in_file() == (at_once ? 0 : 700));
            index.add(later);
            CHECK(same(index.search(queries, 30), plain.search(queries, 30)));
        }
    }
}

TEST_CASE("threads that need the same rows of a file get them") {
    VectorIndex plain(48);
    plain.add(unit_rows(1500, 48, 4));
    const Saved saved(plain);
    VectorIndex index(48);
    index.restore(saved.as(false, true));
    std::vector<int> equal(4, 0);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            const auto queries = unit_rows(20, 48, 5 + t);
            equal[t] = same(index.search(queries, 40), plain.search(queries, 40)) ? 1 : 0;
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(equal == std::vector<int>(4, 1));
}

TEST_CASE("a damaged file is noticed, and right rows take its place") {
    const auto rows = unit_rows(300, 20, 9);
    VectorIndex plain(20);
    plain.add(rows);
    Saved saved(plain);
    ++saved.row_sums[123];
    VectorIndex at_once(20);
    CHECK_THROWS_AS(at_once.restore(saved.as(true, true)), twofold::Damaged);
    VectorIndex index(20);
    index.restore(saved.as(false, true));
    const std::span<const float> query(rows.data(), 20);
    CHECK_THROWS_AS(static_cast<void>(index.search(query, 300)), twofold::Damaged);
    index.refill(rows);
    CHECK(same(index.search(query, 300), plain.search(query, 300)));
    ++saved.code_sums[1];
    VectorIndex other(20);
    CHECK_THROWS_AS(other.restore(saved.as(false, true)), twofold::Damaged);
}
