// The portable level, and the specification of the others.
#include "kernel.hpp"

namespace twofold::kernels {
namespace {

void scan(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count, const std::uint16_t* valid,
          float threshold, float* upper, std::uint16_t* hits) {
    const std::size_t stride = (query.groups + 2) * kLine;
    for (std::size_t b = 0; b < count; ++b) {
        hits[b] = 0;
        if (valid[b] == 0) continue;
        const auto* codes = reinterpret_cast<const std::int8_t*>(blocks + b * stride);
        std::int32_t sums[kBlockRows] = {};
        for (std::size_t g = 0; g < query.groups; ++g) {
            const std::int8_t* q = query.codes + 4 * g;
            const std::int8_t* c = codes + kLine * g;
            for (std::size_t lane = 0; lane < kBlockRows; ++lane) {
                sums[lane] += c[4 * lane] * q[0] + c[4 * lane + 1] * q[1] + c[4 * lane + 2] * q[2] +
                              c[4 * lane + 3] * q[3];
            }
        }
        const auto* scales = reinterpret_cast<const float*>(codes + kLine * query.groups);
        const float* residuals = scales + kBlockRows;
        float* out = upper + kBlockRows * b;
        unsigned reached = 0;
        for (std::size_t lane = 0; lane < kBlockRows; ++lane) {
            const float estimate = static_cast<float>(sums[lane]) * (scales[lane] * query.scale);
            out[lane] = estimate + (residuals[lane] * query.slope + query.offset);
            reached |= static_cast<unsigned>(out[lane] >= threshold) << lane;
        }
        hits[b] = static_cast<std::uint16_t>(reached & valid[b]);
    }
}

/// One bit per byte of eight, set where the byte is not 0.
unsigned pack8(const std::uint8_t* bytes) {
    std::uint64_t word;
    __builtin_memcpy(&word, bytes, sizeof word);
    word |= word >> 4;
    word |= word >> 2;
    word |= word >> 1;
    return static_cast<unsigned>(((word & 0x0101010101010101U) * 0x0102040810204080U) >> 56);
}

void select(const std::uint8_t* mask, std::size_t count, std::uint16_t* valid) {
    for (std::size_t b = 0; b < count; ++b, mask += kBlockRows) {
        valid[b] &= static_cast<std::uint16_t>(pack8(mask) | pack8(mask + 8) << 8);
    }
}

float score_one(const float* query, const float* row, std::size_t width) {
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
        for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += row[i + j] * query[i + j];
    }
    if (i < width) {
        for (std::size_t j = 0; j < kLanes / 2; ++j) lanes[j] += row[i + j] * query[i + j];
    }
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    return lanes[0];
}

void score(const float* query, const float* const* rows, std::size_t count, std::size_t width, float* out) {
    for (std::size_t r = 0; r < count; ++r) out[r] = score_one(query, rows[r], width);
}

void dots(const std::int8_t* queries, const std::int32_t*, std::size_t count, const std::int8_t* tokens,
          std::size_t token_count, std::size_t dim, std::int32_t* out) {
    for (std::size_t t = 0; t < token_count; ++t) {
        for (std::size_t q = 0; q < count; ++q) {
            std::int32_t sum = 0;
            for (std::size_t i = 0; i < dim; ++i) sum += queries[q * dim + i] * tokens[t * dim + i];
            out[t * count + q] = sum;
        }
    }
}

}  // namespace

void nearest_bits_generic(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                          std::size_t count, std::size_t words, std::uint64_t* nearest) {
    constexpr std::uint64_t kOdd = 0x5555555555555555;
    constexpr std::uint64_t kPairs = 0x3333333333333333;
    constexpr std::uint64_t kNibbles = 0x0F0F0F0F0F0F0F0F;
    constexpr std::uint64_t kBytes = 0x0101010101010101;
    for (std::size_t t = 0; t < tiles; ++t, queries += words * kBitQueries, nearest += kBitQueries) {
        for (std::size_t lane = 0; lane < kBitQueries; ++lane) nearest[lane] = ~std::uint64_t{0};
        const std::uint64_t* code = codes;
        for (std::size_t c = 0; c < count; ++c, code += words) {
            std::uint64_t sums[kBitQueries] = {};
            for (std::size_t w = 0; w < words; ++w) {
                for (std::size_t lane = 0; lane < kBitQueries; ++lane) {
                    std::uint64_t x = queries[w * kBitQueries + lane] ^ code[w];
                    x -= x >> 1 & kOdd;
                    x = (x & kPairs) + (x >> 2 & kPairs);
                    x = (x + (x >> 4)) & kNibbles;
                    sums[lane] += x * kBytes >> 56;
                }
            }
            for (std::size_t lane = 0; lane < kBitQueries; ++lane) {
                nearest[lane] = sums[lane] < nearest[lane] ? sums[lane] : nearest[lane];
            }
        }
    }
}

const Kernel generic = {"generic", scan, nullptr, select, score, dots, nearest_bits_generic};

}  // namespace twofold::kernels
