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

void scan(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count, const std::uint16_t* valid,
          float threshold, float* upper, std::uint16_t* hits) {
    const std::size_t stride = (query.groups + 2) * kLine;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i start = _mm512_set1_epi32(-128 * query.code_sum);
    const __m512 level = _mm512_set1_ps(threshold);
    for (std::size_t b = 0; b < count; ++b) {
        hits[b] = 0;
        if (valid[b] == 0) continue;
        const std::uint8_t* codes = blocks + b * stride;
        __m512i s0 = start, s1 = _mm512_setzero_si512(), s2 = s1, s3 = s1;
        std::size_t g = 0;
        for (; g + 4 <= query.groups; g += 4) {
            const std::uint8_t* line = codes + kLine * g;
            s0 = add_products(s0, line, query.codes + 4 * g, bias);
            s1 = add_products(s1, line + kLine, query.codes + 4 * g + 4, bias);
            s2 = add_products(s2, line + 2 * kLine, query.codes + 4 * g + 8, bias);
            s3 = add_products(s3, line + 3 * kLine, query.codes + 4 * g + 12, bias);
        }
        for (; g < query.groups; ++g) s0 = add_products(s0, codes + kLine * g, query.codes + 4 * g, bias);
        const __m512i sums = _mm512_add_epi32(_mm512_add_epi32(s0, s1), _mm512_add_epi32(s2, s3));

        const auto* scales = reinterpret_cast<const float*>(codes + kLine * query.groups);
        const __m512 factor = _mm512_mul_ps(_mm512_load_ps(scales), _mm512_set1_ps(query.scale));
        const __m512 estimate = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), factor);
        const __m512 residuals = _mm512_load_ps(scales + kBlockRows);
        const __m512 spread = _mm512_add_ps(_mm512_mul_ps(residuals, _mm512_set1_ps(query.slope)),
                                            _mm512_set1_ps(query.offset));
        const __m512 bound = _mm512_add_ps(estimate, spread);
        _mm512_storeu_ps(upper + kBlockRows * b, bound);
        hits[b] = static_cast<std::uint16_t>(_mm512_cmp_ps_mask(bound, level, _CMP_GE_OQ) & valid[b]);
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

void dots(const std::int8_t* queries, std::size_t count, const std::int8_t* token, std::size_t dim,
          std::int32_t* out) {
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
    const std::size_t whole = dim / 64 * 64;
    const __mmask64 rest = (std::uint64_t{1} << (dim % 64)) - 1;
    __m512i shift = _mm512_setzero_si512();
    for (std::size_t i = 0; i < whole; i += 64)
        shift = _mm512_dpbusd_epi32(shift, bias, _mm512_loadu_si512(token + i));
    shift = _mm512_dpbusd_epi32(shift, bias, _mm512_maskz_loadu_epi8(rest, token + whole));
    const std::int32_t offset = _mm512_reduce_add_epi32(shift);
    for (std::size_t q = 0; q < count; ++q) {
        const std::int8_t* query = queries + q * dim;
        __m512i sums = _mm512_setzero_si512();
        for (std::size_t i = 0; i < whole; i += 64) {
            const __m512i shifted = _mm512_xor_si512(_mm512_loadu_si512(query + i), bias);
            sums = _mm512_dpbusd_epi32(sums, shifted, _mm512_loadu_si512(token + i));
        }
        const __m512i shifted = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, query + whole), bias);
        sums = _mm512_dpbusd_epi32(sums, shifted, _mm512_maskz_loadu_epi8(rest, token + whole));
        out[q] = _mm512_reduce_add_epi32(sums) - offset;
    }
}

}  // namespace

const Kernel avx512 = {"avx512", scan, score, dots};

}  // namespace twofold::kernels
