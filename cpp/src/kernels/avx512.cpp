// AVX-512 with VNNI. The instruction wants one unsigned side, so 128 is added to it and taken off once at the
// end.
#include <immintrin.h>

#include "kernel.hpp"

namespace twofold::kernels {
namespace {

__m512i broadcast4(const std::int8_t* bytes) {
    return _mm512_broadcastd_epi32(_mm_loadu_si32(bytes));
}

__m512i add_products(__m512i sum, const std::uint8_t* line, const std::int8_t* query, __m512i bias) {
    return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_load_si512(line), bias), broadcast4(query));
}

__m512 bound(__m512i sums, const std::uint8_t* tail, const ScanQuery& query) {
    const auto* scales = reinterpret_cast<const float*>(tail);
    const __m512 factor = _mm512_mul_ps(_mm512_load_ps(scales), _mm512_set1_ps(query.scale));
    const __m512 estimate = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), factor);
    const __m512 residuals = _mm512_load_ps(scales + kBlockRows);
    const __m512 spread =
        _mm512_add_ps(_mm512_mul_ps(residuals, _mm512_set1_ps(query.slope)), _mm512_set1_ps(query.offset));
    return _mm512_add_ps(estimate, spread);
}

std::uint16_t emit(__m512 bounds, float threshold, std::uint16_t valid, float* upper) {
    _mm512_storeu_ps(upper, bounds);
    const __mmask16 reached = _mm512_cmp_ps_mask(bounds, _mm512_set1_ps(threshold), _CMP_GE_OQ);
    return static_cast<std::uint16_t>(reached & valid);
}

void scan(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count, const std::uint16_t* valid,
          float threshold, float* upper, std::uint16_t* hits) {
    const std::size_t stride = (query.groups + 2) * kLine;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i start = _mm512_set1_epi32(-128 * query.code_sum);
    for (std::size_t b = 0; b < count; ++b) {
        hits[b] = 0;
        if (valid[b] == 0) continue;
        const std::uint8_t* codes = blocks + b * stride;
        __m512i s0 = start, s1 = _mm512_setzero_si512(), s2 = s1, s3 = s1;
        std::size_t g = 0;
        for (; g + 8 <= query.groups; g += 8) {
            const std::uint8_t* line = codes + kLine * g;
            const std::int8_t* part = query.codes + 4 * g;
            s0 = add_products(s0, line, part, bias);
            s1 = add_products(s1, line + kLine, part + 4, bias);
            s2 = add_products(s2, line + 2 * kLine, part + 8, bias);
            s3 = add_products(s3, line + 3 * kLine, part + 12, bias);
            s0 = add_products(s0, line + 4 * kLine, part + 16, bias);
            s1 = add_products(s1, line + 5 * kLine, part + 20, bias);
            s2 = add_products(s2, line + 6 * kLine, part + 24, bias);
            s3 = add_products(s3, line + 7 * kLine, part + 28, bias);
        }
        for (; g < query.groups; ++g) s0 = add_products(s0, codes + kLine * g, query.codes + 4 * g, bias);
        const __m512i sums = _mm512_add_epi32(_mm512_add_epi32(s0, s1), _mm512_add_epi32(s2, s3));
        const __m512 bounds = bound(sums, codes + kLine * query.groups, query);
        hits[b] = emit(bounds, threshold, valid[b], upper + kBlockRows * b);
    }
}

/// One line of codes serves four queries. Two blocks at a time would save more loads but read two streams.
void scan_together(const ScanQuery* const* queries, const std::uint8_t* blocks, std::size_t count,
                   const std::uint16_t* valid, const float* thresholds, float* const* upper,
                   std::uint16_t* const* hits) {
    const std::size_t groups = queries[0]->groups;
    const std::size_t stride = (groups + 2) * kLine;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    for (std::size_t b = 0; b < count; ++b) {
        const std::uint8_t* codes = blocks + b * stride;
        __m512i even[kTogether], odd[kTogether];
        for (std::size_t q = 0; q < kTogether; ++q) {
            even[q] = _mm512_set1_epi32(-128 * queries[q]->code_sum);
            odd[q] = _mm512_setzero_si512();
        }
        const std::size_t end = valid[b] == 0 ? 0 : groups;
        std::size_t g = 0;
        for (; g + 2 <= end; g += 2) {
            const __m512i x = _mm512_xor_si512(_mm512_load_si512(codes + kLine * g), bias);
            const __m512i y = _mm512_xor_si512(_mm512_load_si512(codes + kLine * g + kLine), bias);
            for (std::size_t q = 0; q < kTogether; ++q) {
                even[q] = _mm512_dpbusd_epi32(even[q], x, broadcast4(queries[q]->codes + 4 * g));
                odd[q] = _mm512_dpbusd_epi32(odd[q], y, broadcast4(queries[q]->codes + 4 * g + 4));
            }
        }
        if (g < end) {
            const __m512i x = _mm512_xor_si512(_mm512_load_si512(codes + kLine * g), bias);
            for (std::size_t q = 0; q < kTogether; ++q)
                even[q] = _mm512_dpbusd_epi32(even[q], x, broadcast4(queries[q]->codes + 4 * g));
        }
        for (std::size_t q = 0; q < kTogether; ++q) {
            const __m512i sums = _mm512_add_epi32(even[q], odd[q]);
            const __m512 bounds = bound(sums, codes + kLine * groups, *queries[q]);
            hits[q][b] = emit(bounds, thresholds[q], valid[b], upper[q] + kBlockRows * b);
        }
    }
}

void select(const std::uint8_t* mask, std::size_t count, std::uint16_t* valid) {
    for (std::size_t b = 0; b < count; ++b) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask + kBlockRows * b));
        valid[b] &= static_cast<std::uint16_t>(_mm_test_epi8_mask(bytes, bytes));
    }
}

__m512 add_scaled(__m512 sum, const float* row, const float* query) {
    return _mm512_add_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(row), _mm512_loadu_ps(query)));
}

float fold(__m512 a0, __m512 a1) {
    const __m512 sixteen = _mm512_add_ps(a0, a1);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

void score(const float* query, const float* const* rows, std::size_t count, std::size_t width, float* out) {
    for (std::size_t r = 0; r < count; ++r) {
        const float* row = rows[r];
        const float* next = rows[r + 1 < count ? r + 1 : r];
        __m512 a0 = _mm512_setzero_ps(), a1 = a0;
        std::size_t i = 0;
        for (; i + kLanes <= width; i += kLanes) {
            _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(next + i + 16), _MM_HINT_T0);
            a0 = add_scaled(a0, row + i, query + i);
            a1 = add_scaled(a1, row + i + 16, query + i + 16);
        }
        if (i < width) a0 = add_scaled(a0, row + i, query + i);
        out[r] = fold(a0, a1);
    }
}

/// The totals of four registers.
__m128i totals(const __m512i (&sums)[4]) {
    __m256i half[4];
    for (std::size_t j = 0; j < 4; ++j) {
        half[j] = _mm256_add_epi32(_mm512_castsi512_si256(sums[j]), _mm512_extracti64x4_epi64(sums[j], 1));
    }
    const __m256i pairs =
        _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]), _mm256_hadd_epi32(half[2], half[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

void dots(const std::int8_t* queries, const std::int32_t* query_sums, std::size_t count,
          const std::int8_t* tokens, std::size_t token_count, std::size_t dim, std::int32_t* out) {
    constexpr std::size_t kTile = 4;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    const std::size_t whole = dim / 64 * 64;
    const __mmask64 rest = (std::uint64_t{1} << (dim % 64)) - 1;
    for (std::size_t t = 0; t < token_count; t += 2) {
        const std::size_t pair = t + 1 < token_count ? 2 : 1;
        const std::int8_t* first = tokens + t * dim;
        const std::int8_t* second = tokens + (t + pair - 1) * dim;
        for (std::size_t q = 0; q < count; q += kTile) {
            // A tile over the end repeats its last query or token and drops the copies.
            const std::int8_t* rows[kTile];
            for (std::size_t j = 0; j < kTile; ++j)
                rows[j] = queries + (q + j < count ? q + j : count - 1) * dim;
            __m512i sums[2][kTile] = {};
            for (std::size_t i = 0; i < whole; i += 64) {
                const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(first + i), bias);
                const __m512i y = _mm512_xor_si512(_mm512_loadu_si512(second + i), bias);
                for (std::size_t j = 0; j < kTile; ++j) {
                    const __m512i codes = _mm512_loadu_si512(rows[j] + i);
                    sums[0][j] = _mm512_dpbusd_epi32(sums[0][j], x, codes);
                    sums[1][j] = _mm512_dpbusd_epi32(sums[1][j], y, codes);
                }
            }
            if (rest != 0) {
                const __m512i x = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, first + whole), bias);
                const __m512i y = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, second + whole), bias);
                for (std::size_t j = 0; j < kTile; ++j) {
                    const __m512i codes = _mm512_maskz_loadu_epi8(rest, rows[j] + whole);
                    sums[0][j] = _mm512_dpbusd_epi32(sums[0][j], x, codes);
                    sums[1][j] = _mm512_dpbusd_epi32(sums[1][j], y, codes);
                }
            }
            const __mmask8 kept = static_cast<__mmask8>(q + kTile <= count ? 0xf : (1U << (count - q)) - 1);
            const __m128i shift = _mm_slli_epi32(_mm_maskz_loadu_epi32(kept, query_sums + q), 7);
            for (std::size_t i = 0; i < pair; ++i) {
                _mm_mask_storeu_epi32(out + (t + i) * count + q, kept, _mm_sub_epi32(totals(sums[i]), shift));
            }
        }
    }
}

}  // namespace

const Kernel avx512 = {"avx512", scan, scan_together, select, score, dots, nearest_bits_avx2};
const Kernel avx512p = {"avx512p", scan, scan_together, select, score, dots, nearest_bits_vpopcnt};

}  // namespace twofold::kernels
