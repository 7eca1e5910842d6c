// Strength of memories over arrays. Ages are inputs: the core has no clock.
#pragma once

#include <cstdint>
#include <span>

namespace twofold {

/// Every member holds either one value for all rows or one value per row.
struct DecayRates {
    std::span<const double> age_rate;      ///< per day
    std::span<const double> idle_rate;     ///< per day
    std::span<const double> access_boost;  ///< per access
    std::span<const double> access_cap;    ///< upper limit of the access term
    std::span<const double> recent_boost;  ///< per access in the last 24 h
};

/// out = min(1, exp(-age_rate age) * (1 + min(access_boost accesses, access_cap)) * exp(-idle_rate idle)
///              + recent_boost recent).
/// Negative ages count as 0 (two machines' clocks may differ). Values are finite, counts not negative.
void decay(std::span<const double> age_days, std::span<const double> idle_days,
           std::span<const std::int64_t> accesses, std::span<const std::int64_t> recent,
           const DecayRates& rates, std::span<double> out);

}  // namespace twofold
