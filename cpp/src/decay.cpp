#include "twofold/decay.hpp"

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
        const double age = age_days[i] > 0.0 ? age_days[i] : 0.0;
        const double idle = idle_days[i] > 0.0 ? idle_days[i] : 0.0;
        const double raw = access_boost[i] * static_cast<double>(accesses[i]);
        const double boost = raw < access_cap[i] ? raw : access_cap[i];
        const double faded =
            arith::exp(-(age_rate[i] * age)) * (1.0 + boost) * arith::exp(-(idle_rate[i] * idle));
        const double strength = faded + recent_boost[i] * static_cast<double>(recent[i]);
        out[i] = strength < 1.0 ? strength : 1.0;
    }
}

}  // namespace twofold
