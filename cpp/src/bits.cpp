#include "twofold/bits.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "arith.hpp"
#include "kernels/kernel.hpp"

namespace twofold {

std::vector<double> bits_maxsim(std::span<const std::uint64_t> query, std::span<const double> weights,
                                std::span<const std::uint64_t> codes, std::size_t words,
                                std::span<const std::int64_t> starts, std::span<const std::int64_t> stops,
                                std::string_view kernel) {
    if (words == 0) throw std::invalid_argument("a code must have at least one word");
    if (query.size() != weights.size() * words)
        throw std::invalid_argument("query has not one code a weight");
    if (codes.size() % words != 0) throw std::invalid_argument("codes end within a code");
    if (starts.size() != stops.size()) throw std::invalid_argument("starts and stops differ in length");
    const auto count = static_cast<std::int64_t>(codes.size() / words);
    for (std::size_t r = 0; r < starts.size(); ++r) {
        if (starts[r] < 0 || stops[r] < starts[r] || stops[r] > count) {
            throw std::out_of_range("row " + std::to_string(r) + " owns codes that are not there");
        }
    }
    double total = 0.0;
    for (const double weight : weights) {
        if (!(weight >= 0.0) || !std::isfinite(weight)) {
            throw std::invalid_argument("weights must be finite and not negative");
        }
        total += weight;
    }
    const kernels::Kernel* level = &kernels::active();
    if (!kernel.empty()) level = kernels::find(std::string(kernel).c_str());
    if (level == nullptr) {
        throw std::invalid_argument("kernel level " + std::string(kernel) + " is not supported here");
    }
    std::vector<double> out(starts.size(), 0.0);
    if (!(total > 0.0)) return out;
    const auto bits = static_cast<std::int64_t>(64 * words);
    const double scale = static_cast<double>(bits) * total;
    for (std::size_t r = 0; r < starts.size(); ++r) {
        const auto owned = static_cast<std::size_t>(stops[r] - starts[r]);
        if (owned == 0) continue;
        const std::uint64_t* first = codes.data() + static_cast<std::size_t>(starts[r]) * words;
        double sum = 0.0;
        for (std::size_t q = 0; q < weights.size(); ++q) {
            const auto nearest =
                static_cast<std::int64_t>(level->nearest_bits(query.data() + q * words, first, owned, words));
            sum += weights[q] * static_cast<double>(bits - 2 * nearest);
        }
        out[r] = sum / scale;
    }
    return out;
}

std::vector<double> rarity(std::span<const std::int64_t> document_frequency, double documents) {
    if (!(documents >= 0.0) || !std::isfinite(documents)) {
        throw std::invalid_argument("documents must be finite and not negative");
    }
    std::vector<double> out;
    out.reserve(document_frequency.size());
    for (const std::int64_t counted : document_frequency) {
        if (counted < 0) throw std::invalid_argument("a document frequency is negative");
        const double df = std::min(static_cast<double>(counted), documents);
        out.push_back(arith::log(1.0 + (documents - df + 0.5) / (df + 0.5)));
    }
    return out;
}

}  // namespace twofold
