// AVX-512 with VPOPCNTDQ: eight queries a register, each word of a code broadcast to them from memory.
#include <immintrin.h>

#include "kernel.hpp"

namespace twofold::kernels {
namespace {

/// kWords 0: any number. Otherwise the queries stay in registers.
template <std::size_t kWords>
void nearest_of(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                std::size_t count, std::size_t words, std::uint64_t* nearest) {
    const std::size_t all = kWords == 0 ? words : kWords;
    for (std::size_t t = 0; t < tiles; ++t, queries += all * kBitQueries, nearest += kBitQueries) {
        __m512i held[kWords + 1];
        for (std::size_t w = 0; w < kWords; ++w) held[w] = _mm512_loadu_si512(queries + w * kBitQueries);
        __m512i least = _mm512_set1_epi64(-1);
        const std::uint64_t* code = codes;
        for (std::size_t c = 0; c < count; ++c, code += all) {
            __m512i sum = _mm512_setzero_si512();
            for (std::size_t w = 0; w < all; ++w) {
                const __m512i query = kWords == 0 ? _mm512_loadu_si512(queries + w * kBitQueries) : held[w];
                const __m512i word = _mm512_set1_epi64(static_cast<long long>(code[w]));
                sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(query, word)));
            }
            least = _mm512_min_epu64(least, sum);
        }
        _mm512_storeu_si512(nearest, least);
    }
}

}  // namespace

void nearest_bits_vpopcnt(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                          std::size_t count, std::size_t words, std::uint64_t* nearest) {
    // 384 dimensions are the default embedder's: its queries stay in registers.
    const auto level = words == 6 ? nearest_of<6> : nearest_of<0>;
    level(queries, tiles, codes, count, words, nearest);
}

}  // namespace twofold::kernels
