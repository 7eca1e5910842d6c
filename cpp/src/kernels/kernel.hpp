// What an instruction set must provide. No inline functions here: a copy compiled with wider flags could be
// the one the linker keeps for every caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twofold::kernels {

/// Rows of one code block. A block is `groups` lines of 64 bytes (four codes of each row), then 16 scales and
/// 16 residual norms as float32: (groups + 2) * 64 bytes in one stream.
constexpr std::size_t kBlockRows = 16;
constexpr std::size_t kLine = 64;

/// Float lanes of the fixed score layout: lane j adds x[j], x[j + 32], ..., then the lanes fold 32 -> 16 ->
/// ... -> 1.
constexpr std::size_t kLanes = 32;

/// Queries that scan_together takes at once.
constexpr std::size_t kTogether = 4;

/// One quantised query. The kernel bounds the score of a row from above by
/// float(dot) * (row_scale * scale) + (row_residual * slope + offset), each operation rounded once.
struct ScanQuery {
    const std::int8_t* codes;       // groups * 4 values in [-127, 127], zero padded
    const std::int8_t* magnitudes;  // |codes|
    std::int32_t code_sum;
    std::size_t groups;
    float scale;
    float slope;
    float offset;
};

struct Kernel {
    const char* name;

    /// Bounds the rows of `count` consecutive blocks: upper[16 * b + lane], and in hits[b] the lanes of
    /// valid[b] whose bound reaches `threshold`. `upper` is left alone for blocks without a valid lane.
    void (*scan)(const ScanQuery& query, const std::uint8_t* blocks, std::size_t count,
                 const std::uint16_t* valid, float threshold, float* upper, std::uint16_t* hits);

    /// The same for kTogether queries in one pass, results by query; nullptr where that gains nothing.
    void (*scan_together)(const ScanQuery* const* queries, const std::uint8_t* blocks, std::size_t count,
                          const std::uint16_t* valid, const float* thresholds, float* const* upper,
                          std::uint16_t* const* hits);

    /// Takes from valid[b] the lanes whose byte mask[16 * b + lane] is 0, for `count` blocks.
    void (*select)(const std::uint8_t* mask, std::size_t count, std::uint16_t* valid);

    /// Exact scores in the fixed lane layout. `width` is a multiple of 16; query and rows are zero padded to
    /// it.
    void (*score)(const float* query, const float* const* rows, std::size_t count, std::size_t width,
                  float* out);

    /// Exact dot products out[t * count + q] of `tokens` with `count` queries, whose values are in [-127,
    /// 127] and whose codes add up to query_sums[q].
    void (*dots)(const std::int8_t* queries, const std::int32_t* query_sums, std::size_t count,
                 const std::int8_t* tokens, std::size_t token_count, std::size_t dim, std::int32_t* out);

    /// nearest[q] = the least number of bits in which one of `count` codes of `words` words differs from
    /// query q; count >= 1. Queries lie in tiles of kBitQueries, word by word: word w of query q is
    /// queries[(q / kBitQueries * words + w) * kBitQueries + q % kBitQueries]. `tiles` whole tiles are read,
    /// and written.
    void (*nearest_bits)(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                         std::size_t count, std::size_t words, std::uint64_t* nearest);
};

/// Queries that stand side by side in `nearest_bits`: the 64-bit lanes of the widest register.
constexpr std::size_t kBitQueries = 8;

void nearest_bits_generic(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                          std::size_t count, std::size_t words, std::uint64_t* nearest);
#if defined(__x86_64__)
void nearest_bits_avx2(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                       std::size_t count, std::size_t words, std::uint64_t* nearest);
void nearest_bits_vpopcnt(const std::uint64_t* queries, std::size_t tiles, const std::uint64_t* codes,
                          std::size_t count, std::size_t words, std::uint64_t* nearest);
#endif

extern const Kernel generic;
#if defined(__x86_64__)
extern const Kernel avx2;
extern const Kernel avx512;
/// The same with the VPOPCNTDQ instructions, which came three years later.
extern const Kernel avx512p;
#elif defined(__aarch64__)
extern const Kernel neon;
#endif

/// The levels this machine can run, best first; the end is marked by nullptr.
const Kernel* const* supported();

/// The level called `name`, or nullptr where this machine cannot run it.
const Kernel* find(const char* name);

/// The level of this process: the best one, or what TWOFOLD_KERNEL names. Throws std::invalid_argument.
const Kernel& active();

}  // namespace twofold::kernels
