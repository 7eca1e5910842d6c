// NEON as every aarch64 has it: two products of [-127, 127] fit 16 bits, so pairs are added before widening.
#include <arm_neon.h>

#include "kernel.hpp"

namespace twofold::kernels {
namespace {

int32x4_t add_products(int32x4_t sum, int8x16_t a, int8x16_t b) {
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    const int16x8_t high = vmull_high_s8(a, b);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

void scan(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count, const std::uint16_t* valid,
          float threshold, float* upper, std::uint16_t* hits) {
    const std::size_t stride = (query.groups + 2) * kLine;
    const float32x4_t level = vdupq_n_f32(threshold);
    const std::uint32_t bits[4] = {1, 2, 4, 8};
    const uint32x4_t weights = vld1q_u32(bits);
    for (std::size_t b = 0; b < count; ++b) {
        hits[b] = 0;
        if (valid[b] == 0) continue;
        const auto* codes = reinterpret_cast<const std::int8_t*>(blocks + b * stride);
        int32x4_t s0 = vdupq_n_s32(0), s1 = s0, s2 = s0, s3 = s0;
        for (std::size_t g = 0; g < query.groups; ++g) {
            const std::int8_t* line = codes + kLine * g;
            std::int32_t word;
            __builtin_memcpy(&word, query.codes + 4 * g, sizeof word);
            const int8x16_t q = vreinterpretq_s8_s32(vdupq_n_s32(word));
            s0 = add_products(s0, vld1q_s8(line), q);
            s1 = add_products(s1, vld1q_s8(line + 16), q);
            s2 = add_products(s2, vld1q_s8(line + 32), q);
            s3 = add_products(s3, vld1q_s8(line + 48), q);
        }
        const auto* scales = reinterpret_cast<const float*>(codes + kLine * query.groups);
        const int32x4_t sums[4] = {s0, s1, s2, s3};
        std::uint32_t reached = 0;
        for (std::size_t part = 0; part < 4; ++part) {
            const float32x4_t factor = vmulq_f32(vld1q_f32(scales + 4 * part), vdupq_n_f32(query.scale));
            const float32x4_t estimate = vmulq_f32(vcvtq_f32_s32(sums[part]), factor);
            const float32x4_t residuals = vld1q_f32(scales + kBlockRows + 4 * part);
            const float32x4_t spread =
                vaddq_f32(vmulq_f32(residuals, vdupq_n_f32(query.slope)), vdupq_n_f32(query.offset));
            const float32x4_t bound = vaddq_f32(estimate, spread);
            vst1q_f32(upper + kBlockRows * b + 4 * part, bound);
            reached |= vaddvq_u32(vandq_u32(vcgeq_f32(bound, level), weights)) << (4 * part);
        }
        hits[b] = static_cast<std::uint16_t>(reached & valid[b]);
    }
}

void select(const std::uint8_t* mask, std::size_t count, std::uint16_t* valid) {
    const std::uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t weights = vld1q_u8(bits);
    for (std::size_t b = 0; b < count; ++b) {
        const uint8x16_t bytes = vld1q_u8(mask + kBlockRows * b);
        const uint8x16_t passed = vandq_u8(vtstq_u8(bytes, bytes), weights);
        const unsigned low = vaddv_u8(vget_low_u8(passed)), high = vaddv_u8(vget_high_u8(passed));
        valid[b] &= static_cast<std::uint16_t>(low | high << 8);
    }
}

float32x4_t add_scaled(float32x4_t sum, const float* row, const float* query) {
    return vaddq_f32(sum, vmulq_f32(vld1q_f32(row), vld1q_f32(query)));
}

void score(const float* query, const float* const* rows, std::size_t count, std::size_t width, float* out) {
    for (std::size_t r = 0; r < count; ++r) {
        const float* row = rows[r];
        float32x4_t a[8];
        for (auto& lane : a) lane = vdupq_n_f32(0.0F);
        std::size_t i = 0;
        for (; i + kLanes <= width; i += kLanes) {
            for (std::size_t j = 0; j < 8; ++j) a[j] = add_scaled(a[j], row + i + 4 * j, query + i + 4 * j);
        }
        if (i < width) {
            for (std::size_t j = 0; j < 4; ++j) a[j] = add_scaled(a[j], row + i + 4 * j, query + i + 4 * j);
        }
        for (std::size_t half = 4; half > 0; half /= 2) {
            for (std::size_t j = 0; j < half; ++j) a[j] = vaddq_f32(a[j], a[j + half]);
        }
        const float32x2_t two = vadd_f32(vget_low_f32(a[0]), vget_high_f32(a[0]));
        out[r] = vget_lane_f32(vadd_f32(two, vdup_lane_f32(two, 1)), 0);
    }
}

void dots(const std::int8_t* queries, const std::int32_t*, std::size_t count, const std::int8_t* tokens,
          std::size_t token_count, std::size_t dim, std::int32_t* out) {
    for (std::size_t t = 0; t < token_count; ++t) {
        const std::int8_t* token = tokens + t * dim;
        for (std::size_t q = 0; q < count; ++q) {
            const std::int8_t* query = queries + q * dim;
            int32x4_t sums = vdupq_n_s32(0);
            std::size_t i = 0;
            for (; i + 16 <= dim; i += 16)
                sums = add_products(sums, vld1q_s8(query + i), vld1q_s8(token + i));
            std::int32_t sum = vaddvq_s32(sums);
            for (; i < dim; ++i) sum += query[i] * token[i];
            out[t * count + q] = sum;
        }
    }
}

}  // namespace

const Kernel neon = {"neon", scan, nullptr, select, score, dots, nearest_bits_generic};

}  // namespace twofold::kernels
