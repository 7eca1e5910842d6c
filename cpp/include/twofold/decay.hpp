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

/// What the strength of a row is made of; times in microseconds, columns per row or per lineage.
struct StrengthColumns {
    std::span<const std::int32_t> lineage;   ///< per row
    std::span<const std::int32_t> type;      ///< per row
    std::span<const std::int64_t> recorded;  ///< per row
    std::span<const std::int64_t> count;     ///< accesses, per lineage
    std::span<const std::int64_t> last;      ///< last access, per lineage
    std::span<const std::int64_t> recent;    ///< accesses in the last 24 h, per lineage
    std::span<const double> rates;           ///< five per type, in the order of DecayRates
};

/// What `decay` gives for single rows at `now`, idle since they were recorded or last used, whichever is later.
void strength_rows(std::span<const std::int64_t> rows, const StrengthColumns& columns, std::int64_t now,
                   double day, std::span<double> out);

}  // namespace twofold
