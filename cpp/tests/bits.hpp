// For tests that pin the bits of a result: an own random source and a hash of bit patterns, the same
// everywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace bits {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return state_ >> 33;
    }
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(next() % n); }
    double unit() { return static_cast<double>(next()) / 2147483648.0; }

  private:
    std::uint64_t state_;
};

inline std::uint64_t hash(std::uint64_t seed, std::span<const double> values) {
    for (const double value : values) seed = (seed ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    return seed;
}

inline std::uint64_t hash(std::uint64_t seed, std::span<const std::int64_t> values) {
    for (const std::int64_t value : values)
        seed = (seed ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    return seed;
}

}  // namespace bits
