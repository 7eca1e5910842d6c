#include "twofold/pack.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/kernel.hpp"

namespace twofold {
namespace {

/// Rows as the kernel wants them: zero padded to a multiple of 16 floats, copied only where they are not.
class Padded {
  public:
    explicit Padded(const Rows& rows) : width_((rows.dim + 15) / 16 * 16), data_(rows.values.data()) {
        if (width_ == rows.dim) return;
        copy_.resize(rows.count() * width_, 0.0F);
        for (std::size_t i = 0; i < rows.count(); ++i) {
            std::copy_n(rows[i].data(), rows.dim, copy_.data() + i * width_);
        }
        data_ = copy_.data();
    }
    const float* operator[](std::size_t row) const { return data_ + row * width_; }

    /// Cosines of one row with others, in the lane order of the vector search.
    void cosines(std::size_t row, std::span<const float* const> others, std::vector<float>& out) const {
        out.resize(others.size());
        kernels::active().score((*this)[row], others.data(), others.size(), width_, out.data());
    }

  private:
    std::size_t width_;
    const float* data_;
    std::vector<float> copy_;
};

void check_rows(const Rows& rows) {
    if (rows.dim == 0 || rows.values.size() % rows.dim != 0) {
        throw std::invalid_argument("vectors must be rows of one dimension of at least 1");
    }
    for (const float value : rows.values) {
        if (!std::isfinite(value)) throw std::invalid_argument("vectors must be finite");
    }
}

/// Cost of one item, after checking that neither part is negative nor the sum overflows.
std::int64_t cost_of(std::int64_t tokens, std::int64_t overhead) {
    if (tokens < 0) throw std::invalid_argument("tokens must not be negative, got " + std::to_string(tokens));
    if (tokens > std::numeric_limits<std::int64_t>::max() - overhead) {
        throw std::invalid_argument("tokens + overhead is too large");
    }
    return tokens + overhead;
}

void check_budget(std::int64_t budget, std::int64_t overhead) {
    if (budget < 0) throw std::invalid_argument("budget must not be negative, got " + std::to_string(budget));
    if (overhead < 0)
        throw std::invalid_argument("overhead must not be negative, got " + std::to_string(overhead));
}

}  // namespace

std::vector<std::int64_t> mmr(std::span<const double> relevance, const Rows& rows, double lambda,
                              std::size_t k) {
    check_rows(rows);
    const std::size_t count = relevance.size();
    if (rows.count() != count) {
        throw std::invalid_argument("got " + std::to_string(count) + " relevances and " +
                                    std::to_string(rows.count()) + " vectors");
    }
    if (!(lambda >= 0.0 && lambda <= 1.0)) throw std::invalid_argument("lam must be in [0, 1]");
    for (const double value : relevance) {
        if (!std::isfinite(value)) throw std::invalid_argument("relevance must be finite");
    }
    std::vector<std::int64_t> chosen;
    chosen.reserve(std::min(k, count));
    std::vector<std::uint32_t> open(count);
    for (std::size_t i = 0; i < count; ++i) open[i] = static_cast<std::uint32_t>(i);
    std::vector<double> nearest(count, 0.0);
    const Padded padded(rows);
    std::vector<const float*> others;
    std::vector<float> cosines;
    while (chosen.size() < k && !open.empty()) {
        std::size_t best = 0;
        double best_value = -std::numeric_limits<double>::infinity();
        for (std::size_t o = 0; o < open.size(); ++o) {
            const double value = lambda * relevance[open[o]] - (1.0 - lambda) * nearest[open[o]];
            if (value > best_value) {
                best = o;
                best_value = value;
            }
        }
        const std::uint32_t row = open[best];
        const bool first = chosen.empty();
        chosen.push_back(row);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
        if (chosen.size() == k || lambda == 1.0) continue;
        others.clear();
        for (const std::uint32_t other : open) others.push_back(padded[other]);
        padded.cosines(row, others, cosines);
        for (std::size_t o = 0; o < open.size(); ++o) {
            const auto cosine = static_cast<double>(cosines[o]);
            if (first || cosine > nearest[open[o]]) nearest[open[o]] = cosine;
        }
    }
    return chosen;
}

std::vector<std::int64_t> pack(std::span<const std::int64_t> tokens, std::int64_t budget,
                               std::int64_t overhead) {
    check_budget(budget, overhead);
    std::vector<std::int64_t> taken;
    std::int64_t left = budget;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t cost = cost_of(tokens[i], overhead);
        if (cost > left) continue;
        left -= cost;
        taken.push_back(static_cast<std::int64_t>(i));
    }
    return taken;
}

std::vector<std::int64_t> pack_value(std::span<const std::int64_t> tokens, std::span<const double> values,
                                     std::int64_t budget, std::int64_t overhead) {
    check_budget(budget, overhead);
    if (tokens.size() != values.size()) {
        throw std::invalid_argument("got " + std::to_string(tokens.size()) + " token counts and " +
                                    std::to_string(values.size()) + " values");
    }
    struct Item {
        double rate;
        std::int64_t cost;
        std::int64_t position;
    };
    std::vector<Item> items(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (!(std::isfinite(values[i]) && values[i] >= 0.0)) {
            throw std::invalid_argument("values must be finite and not negative");
        }
        const std::int64_t cost = cost_of(tokens[i], overhead);
        const double rate =
            cost == 0 ? std::numeric_limits<double>::infinity() : values[i] / static_cast<double>(cost);
        items[i] = {rate, cost, static_cast<std::int64_t>(i)};
    }
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return a.rate > b.rate || (a.rate == b.rate && a.position < b.position);
    });
    std::vector<std::int64_t> taken;
    std::int64_t left = budget;
    for (const Item& item : items) {
        if (item.cost > left) continue;
        left -= item.cost;
        taken.push_back(item.position);
    }
    std::sort(taken.begin(), taken.end());
    return taken;
}

std::vector<std::int64_t> near_duplicates(const Rows& rows, double threshold) {
    check_rows(rows);
    if (!std::isfinite(threshold)) throw std::invalid_argument("threshold must be finite");
    std::vector<std::int64_t> of(rows.count(), -1);
    const Padded padded(rows);
    std::vector<std::int64_t> kept;
    std::vector<const float*> kept_rows;
    std::vector<float> cosines;
    for (std::size_t i = 0; i < of.size(); ++i) {
        padded.cosines(i, kept_rows, cosines);
        const auto same = std::find_if(cosines.begin(), cosines.end(), [threshold](float cosine) {
            return static_cast<double>(cosine) >= threshold;
        });
        if (same != cosines.end()) {
            of[i] = kept[static_cast<std::size_t>(same - cosines.begin())];
        } else {
            kept.push_back(static_cast<std::int64_t>(i));
            kept_rows.push_back(padded[i]);
        }
    }
    return of;
}

}  // namespace twofold
