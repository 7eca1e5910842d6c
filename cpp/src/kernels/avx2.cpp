// AVX2: 16-bit pair sums of |query| * sign(code, query), which cannot saturate because codes stay in [-127,
// 127].
#include <immintrin.h>

#include "kernel.hpp"

namespace twofold::kernels {
namespace {

__m256i broadcast4(const std::int8_t* bytes) {
    return _mm256_broadcastd_epi32(_mm_loadu_si32(bytes));
}

__m256i add_products(__m256i sum, __m256i codes, __m256i query, __m256i magnitude, __m256i ones) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(codes, query));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
}

__m256 bound(__m256i sums, const float* scales, const float* residuals, const ScanQuery& query) {
    const __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(scales), _mm256_set1_ps(query.scale));
    const __m256 estimate = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), factor);
    const __m256 spread = _mm256_add_ps(
        _mm256_mul_ps(_mm256_loadu_ps(residuals), _mm256_set1_ps(query.slope)), _mm256_set1_ps(query.offset));
    return _mm256_add_ps(estimate, spread);
}

void scan(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count, const std::uint16_t* valid,
          float threshold, float* upper, std::uint16_t* hits) {
    const std::size_t stride = (query.groups + 2) * kLine;
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 level = _mm256_set1_ps(threshold);
    for (std::size_t b = 0; b < count; ++b) {
        hits[b] = 0;
        if (valid[b] == 0) continue;
        const std::uint8_t* codes = blocks + b * stride;
        __m256i low0 = _mm256_setzero_si256(), high0 = low0, low1 = low0, high1 = low0;
        std::size_t g = 0;
        for (; g + 2 <= query.groups; g += 2) {
            const auto* line = reinterpret_cast<const __m256i*>(codes + kLine * g);
            const __m256i q0 = broadcast4(query.codes + 4 * g);
            const __m256i m0 = broadcast4(query.magnitudes + 4 * g);
            low0 = add_products(low0, _mm256_load_si256(line), q0, m0, ones);
            high0 = add_products(high0, _mm256_load_si256(line + 1), q0, m0, ones);
            const __m256i q1 = broadcast4(query.codes + 4 * g + 4);
            const __m256i m1 = broadcast4(query.magnitudes + 4 * g + 4);
            low1 = add_products(low1, _mm256_load_si256(line + 2), q1, m1, ones);
            high1 = add_products(high1, _mm256_load_si256(line + 3), q1, m1, ones);
        }
        if (g < query.groups) {
            const auto* line = reinterpret_cast<const __m256i*>(codes + kLine * g);
            const __m256i q0 = broadcast4(query.codes + 4 * g);
            const __m256i m0 = broadcast4(query.magnitudes + 4 * g);
            low0 = add_products(low0, _mm256_load_si256(line), q0, m0, ones);
            high0 = add_products(high0, _mm256_load_si256(line + 1), q0, m0, ones);
        }
        const auto* scales = reinterpret_cast<const float*>(codes + kLine * query.groups);
        const float* residuals = scales + kBlockRows;
        const __m256 low = bound(_mm256_add_epi32(low0, low1), scales, residuals, query);
        const __m256 high = bound(_mm256_add_epi32(high0, high1), scales + 8, residuals + 8, query);
        _mm256_storeu_ps(upper + kBlockRows * b, low);
        _mm256_storeu_ps(upper + kBlockRows * b + 8, high);
        const int reached = _mm256_movemask_ps(_mm256_cmp_ps(low, level, _CMP_GE_OQ)) |
                            _mm256_movemask_ps(_mm256_cmp_ps(high, level, _CMP_GE_OQ)) << 8;
        hits[b] = static_cast<std::uint16_t>(reached & valid[b]);
    }
}

void select(const std::uint8_t* mask, std::size_t count, std::uint16_t* valid) {
    for (std::size_t b = 0; b < count; ++b) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + kBlockRows * b));
        const int none = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        valid[b] &= static_cast<std::uint16_t>(~none);
    }
}

float fold(__m256 a0, __m256 a1, __m256 a2, __m256 a3) {
    const __m256 eight = _mm256_add_ps(_mm256_add_ps(a0, a2), _mm256_add_ps(a1, a3));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

__m256 add_scaled(__m256 sum, const float* row, const float* query) {
    return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(row), _mm256_loadu_ps(query)));
}

void score(const float* query, const float* const* rows, std::size_t count, std::size_t width, float* out) {
    for (std::size_t r = 0; r < count; ++r) {
        const float* row = rows[r];
        const float* next = rows[r + 1 < count ? r + 1 : r];
        __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
        std::size_t i = 0;
        for (; i + kLanes <= width; i += kLanes) {
            _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(next + i + 16), _MM_HINT_T0);
            a0 = add_scaled(a0, row + i, query + i);
            a1 = add_scaled(a1, row + i + 8, query + i + 8);
            a2 = add_scaled(a2, row + i + 16, query + i + 16);
            a3 = add_scaled(a3, row + i + 24, query + i + 24);
        }
        if (i < width) {
            a0 = add_scaled(a0, row + i, query + i);
            a1 = add_scaled(a1, row + i + 8, query + i + 8);
        }
        out[r] = fold(a0, a1, a2, a3);
    }
}

/// The totals of four registers.
__m128i totals(const __m256i* sums) {
    const __m256i pairs =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

void dots(const std::int8_t* queries, const std::int32_t*, std::size_t count, const std::int8_t* tokens,
          std::size_t token_count, std::size_t dim, std::int32_t* out) {
    constexpr std::size_t kTile = 4;
    const __m256i ones = _mm256_set1_epi16(1);
    const std::size_t whole = dim / 32 * 32;
    for (std::size_t t = 0; t < token_count; ++t) {
        const std::int8_t* token = tokens + t * dim;
        for (std::size_t q = 0; q < count; q += kTile) {
            // A tile over the end repeats its last query and drops the copies.
            const std::int8_t* rows[kTile];
            for (std::size_t j = 0; j < kTile; ++j)
                rows[j] = queries + (q + j < count ? q + j : count - 1) * dim;
            __m256i sums[kTile] = {};
            for (std::size_t i = 0; i < whole; i += 32) {
                const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(token + i));
                const __m256i magnitude = _mm256_abs_epi8(x);
                for (std::size_t j = 0; j < kTile; ++j) {
                    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[j] + i));
                    sums[j] = add_products(sums[j], y, x, magnitude, ones);
                }
            }
            alignas(16) std::int32_t found[kTile];
            _mm_store_si128(reinterpret_cast<__m128i*>(found), totals(sums));
            for (std::size_t j = 0; j < kTile && q + j < count; ++j) {
                for (std::size_t i = whole; i < dim; ++i) found[j] += rows[j][i] * token[i];
                out[t * count + q + j] = found[j];
            }
        }
    }
}

/// The bits of each byte, by two lookups of four.
__m256i count_bytes(__m256i x) {
    const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2,
                                            2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(0x0f);
    return _mm256_add_epi8(_mm256_shuffle_epi8(counts, _mm256_and_si256(x, low)),
                           _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(x, 4), low)));
}

/// Bits in which four queries, kBitQueries apart by word, differ from a code. A byte of `sum` holds 31 words.
template <std::size_t kWords>
__m256i distances(const std::uint64_t* queries, const std::uint64_t* code, std::size_t words) {
    constexpr std::size_t kMostWords = 31;
    const std::size_t all = kWords == 0 ? words : kWords;
    __m256i total = _mm256_setzero_si256();
    for (std::size_t first = 0; first < all; first += kMostWords) {
        const std::size_t end = first + kMostWords < all ? first + kMostWords : all;
        __m256i sum = _mm256_setzero_si256();
        for (std::size_t w = first; w < end; ++w) {
            const __m256i query =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(queries + w * kBitQueries));
            const __m256i word = _mm256_set1_epi64x(static_cast<long long>(code[w]));
            sum = _mm256_add_epi8(sum, count_bytes(_mm256_xor_si256(query, word)));
        }
        total = _mm256_add_epi64(total, _mm256_sad_epu8(sum, _mm256_setzero_si256()));
    }
    return total;
}

template <std::size_t kWords>
void nearest_of(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                std::size_t count, std::size_t words, std::uint64_t* nearest) {
    for (std::size_t half = 0; half < 2 * tiles; ++half) {
        const std::uint64_t* four = queries + half / 2 * words * kBitQueries + half % 2 * (kBitQueries / 2);
        // Counts stay below 2^31, so the 32-bit minimum of the low halves is the 64-bit one.
        __m256i least = _mm256_set1_epi64x(0x7fffffff);
        for (std::size_t c = 0; c < count; ++c) {
            least = _mm256_min_epu32(least, distances<kWords>(four, codes + c * words, words));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(nearest + half * (kBitQueries / 2)), least);
    }
}

}  // namespace

void nearest_bits_avx2(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                       std::size_t count, std::size_t words, std::uint64_t* nearest) {
    // 384 dimensions are the default embedder's: an unrolled loop keeps the queries in registers.
    const auto level = words == 6 ? nearest_of<6> : nearest_of<0>;
    level(queries, tiles, codes, count, words, nearest);
}

const Kernel avx2 = {"avx2", scan, nullptr, select, score, dots, nearest_bits_avx2};

}  // namespace twofold::kernels
