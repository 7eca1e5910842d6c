// exp and log of the core's own: the C library's differ between machines in the last bit.
// Only +, -, *, / and exact scaling are used, so every IEEE machine gives the same bits.
// Internal linkage on purpose: no copy compiled for a wider instruction set may be linked.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace twofold::arith {

// ln 2 = kLn2High + kLn2Low. The high part ends in 21 zero bits, so k * kLn2High is exact
// for every exponent k.
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kInvLn2 = 0x1.71547652b82fep+0;

static inline double power_of_two(int k) {  // -1022 <= k <= 1023
    return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// e^x within 1 ulp for results that are normal numbers. NaN stays NaN.
static inline double exp(double x) {
    if (!(x < 709.782712893384)) return x != x ? x : std::numeric_limits<double>::infinity();
    if (x < -745.2) return 0.0;
    // Adding and taking away 1.5 * 2^52 rounds to the nearest integer without calling libm.
    const double shifted = x * kInvLn2 + 0x1.8p52;
    const double k = shifted - 0x1.8p52;
    const double high = x - k * kLn2High;
    const double low = k * kLn2Low;
    const double r = high - low;
    const double error = (high - r) - low;  // what the line above rounded away
    // Taylor series of (e^r - 1 - r) / r^2; |r| <= ln(2)/2, so the tail after r^13 is below 2^-57.
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    const double mantissa = 1.0 + (r + (r * r * p + error));
    const int exponent = static_cast<int>(k);
    if (exponent > 1023) return mantissa * power_of_two(1023) * 2.0;
    if (exponent < -1021) return mantissa * power_of_two(exponent + 100) * power_of_two(-100);
    return mantissa * power_of_two(exponent);
}

/// Natural logarithm within 1 ulp. log(0) is -infinity, log of a negative number NaN.
static inline double log(double x) {
    if (!(x > 0.0)) {
        return x == 0.0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    if (x == std::numeric_limits<double>::infinity()) return x;
    int k = 0;
    if (x < std::numeric_limits<double>::min()) {
        x *= 0x1p54;
        k = -54;
    }
    const auto bits = std::bit_cast<std::uint64_t>(x);
    k += static_cast<int>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++k;
    }
    // log(1 + f) = 2 atanh(s) with s = f / (2 + f), and 2 s = f - s f, which keeps f exact.
    const double f = m - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    // 2 atanh(s) = f - s (f - z p); half of f^2 is split off because s f alone is rounded.
    const double half = 0.5 * f * f;
    const double tail = s * (half + z * p);
    const double kd = static_cast<double>(k);
    return kd * kLn2High - ((half - (tail + kd * kLn2Low)) - f);
}

}  // namespace twofold::arith
