#include "twofold/decay.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "arith.hpp"

namespace twofold {
namespace {

class PerRow {
  public:
    PerRow(std::span<const double> values, std::size_t rows, const char* name)
        : values_(values), step_(values.size() == 1 ? 0 : 1) {
        if (values.size() != 1 && values.size() != rows) {
            throw std::invalid_argument(std::string(name) + " has " + std::to_string(values.size()) +
                                        " values, give one or one per row (" + std::to_string(rows) + ")");
        }
        for (const double value : values) {
            if (!(std::isfinite(value) && value >= 0.0)) {
                throw std::invalid_argument(std::string(name) + " must be finite and not negative");
            }
        }
    }
    double operator[](std::size_t row) const { return values_[row * step_]; }

  private:
    std::span<const double> values_;
    std::size_t step_;
};

struct Rates {
    double age, idle, boost, cap, recent;
};

double strength(double age_days, double idle_days, std::int64_t accesses, std::int64_t recent,
                const Rates& rates) {
    const double age = age_days > 0.0 ? age_days : 0.0;
    const double idle = idle_days > 0.0 ? idle_days : 0.0;
    const double raw = rates.boost * static_cast<double>(accesses);
    const double boost = raw < rates.cap ? raw : rates.cap;
    const double faded =
        arith::exp(-(rates.age * age)) * (1.0 + boost) * arith::exp(-(rates.idle * idle));
    const double value = faded + rates.recent * static_cast<double>(recent);
    return value < 1.0 ? value : 1.0;
}

}  // namespace

void decay(std::span<const double> age_days, std::span<const double> idle_days,
           std::span<const std::int64_t> accesses, std::span<const std::int64_t> recent,
           const DecayRates& rates, std::span<double> out) {
    const std::size_t rows = age_days.size();
    if (idle_days.size() != rows || accesses.size() != rows || recent.size() != rows || out.size() != rows) {
        throw std::invalid_argument("age_days, idle_days, accesses and recent must have one value per row");
    }
    const PerRow age_rate(rates.age_rate, rows, "age_rate");
    const PerRow idle_rate(rates.idle_rate, rows, "idle_rate");
    const PerRow access_boost(rates.access_boost, rows, "access_boost");
    const PerRow access_cap(rates.access_cap, rows, "access_cap");
    const PerRow recent_boost(rates.recent_boost, rows, "recent_boost");
    for (std::size_t i = 0; i < rows; ++i) {
        if (!std::isfinite(age_days[i]) || !std::isfinite(idle_days[i])) {
            throw std::invalid_argument("age_days and idle_days must be finite");
        }
        if (accesses[i] < 0 || recent[i] < 0) {
            throw std::invalid_argument("accesses and recent must not be negative");
        }
        out[i] = strength(age_days[i], idle_days[i], accesses[i], recent[i],
                          {age_rate[i], idle_rate[i], access_boost[i], access_cap[i], recent_boost[i]});
    }
}

void strength_rows(std::span<const std::int64_t> rows, const StrengthColumns& columns, std::int64_t now,
                   double day, std::span<double> out) {
    const std::size_t size = columns.lineage.size();
    if (columns.type.size() != size || columns.recorded.size() != size || out.size() != rows.size()) {
        throw std::invalid_argument("lineage, type and recorded must have one value per row");
    }
    const std::size_t lineages = columns.count.size();
    if (columns.last.size() != lineages || columns.recent.size() != lineages) {
        throw std::invalid_argument("count, last and recent must have one value per lineage");
    }
    if (!(std::isfinite(day) && day > 0.0)) throw std::invalid_argument("day must be above 0");
    const std::size_t types = columns.rates.size() / 5;
    const PerRow rates(columns.rates, columns.rates.size(), "rates");
    const auto days = [now, day](std::int64_t since) {
        return static_cast<double>(now > since ? now - since : 0) / day;
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<std::size_t>(rows[i]);
        if (rows[i] < 0 || row >= size) throw std::out_of_range("no row " + std::to_string(rows[i]));
        const auto lineage = static_cast<std::size_t>(columns.lineage[row]);
        const auto type = static_cast<std::size_t>(columns.type[row]);
        if (lineage >= lineages || type >= types) {
            throw std::out_of_range("row " + std::to_string(rows[i]) + " has an unknown lineage or type");
        }
        const std::int64_t recorded = columns.recorded[row];
        const std::int64_t used = std::max(columns.last[lineage], recorded);
        out[i] = strength(days(recorded), days(used), columns.count[lineage], columns.recent[lineage],
                          {rates[5 * type], rates[5 * type + 1], rates[5 * type + 2], rates[5 * type + 3],
                           rates[5 * type + 4]});
    }
}

}  // namespace twofold
