#include "twofold/bits.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "arith.hpp"
#include "kernels/kernel.hpp"

namespace twofold {
namespace {

/// Codes in the kernels' tiles; a last tile that is not full repeats no code, it holds zeros.
std::vector<std::uint64_t> tiled(std::span<const std::uint64_t> query, std::size_t words) {
    const std::size_t count = query.size() / words;
    std::vector<std::uint64_t> out(
        (count + kernels::kBitQueries - 1) / kernels::kBitQueries * kernels::kBitQueries * words, 0);
    for (std::size_t q = 0; q < count; ++q) {
        for (std::size_t w = 0; w < words; ++w) {
            out[(q / kernels::kBitQueries * words + w) * kernels::kBitQueries + q % kernels::kBitQueries] =
                query[q * words + w];
        }
    }
    return out;
}

/// Rows whose codes are asked for before they are needed: they lie anywhere in more memory than a cache
/// holds.
constexpr std::size_t kAhead = 2;

void prefetch([[maybe_unused]] const std::uint64_t* words, [[maybe_unused]] std::size_t count) {
#if defined(__GNUC__)
    constexpr std::size_t kLineWords = 8;
    for (std::size_t w = 0; w < count; w += kLineWords) __builtin_prefetch(words + w);
#endif
}

}  // namespace

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
    const std::vector<std::uint64_t> tiles = tiled(query, words);
    const std::size_t tile_count = tiles.size() / (kernels::kBitQueries * words);
    std::vector<std::uint64_t> nearest(tile_count * kernels::kBitQueries);
    const auto bits = static_cast<std::int64_t>(64 * words);
    const double scale = static_cast<double>(bits) * total;
    const auto row_of = [&](std::size_t r) {
        return codes.data() + static_cast<std::size_t>(starts[r]) * words;
    };
    for (std::size_t r = 0; r < starts.size(); ++r) {
        if (r + kAhead < starts.size()) {
            prefetch(row_of(r + kAhead),
                     static_cast<std::size_t>(stops[r + kAhead] - starts[r + kAhead]) * words);
        }
        const auto owned = static_cast<std::size_t>(stops[r] - starts[r]);
        if (owned == 0) continue;
        level->nearest_bits(tiles.data(), tile_count, row_of(r), owned, words, nearest.data());
        double sum = 0.0;
        for (std::size_t q = 0; q < weights.size(); ++q) {
            sum += weights[q] * static_cast<double>(bits - 2 * static_cast<std::int64_t>(nearest[q]));
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

Coded coded_places(std::span<const std::int64_t> vectors, std::span<const std::uint8_t> single,
                   std::span<const std::int64_t> chosen, std::span<const std::int64_t> starts,
                   std::span<const std::int64_t> stops) {
    if (starts.size() != stops.size()) throw std::invalid_argument("starts and stops differ in length");
    if (single.size() != vectors.size()) throw std::invalid_argument("single has not one flag per place");
    Coded out;
    out.places.reserve(vectors.size());
    for (std::size_t p = 0; p < vectors.size(); ++p) {
        if (single[p] == 0) {
            out.places.push_back(0);
            continue;
        }
        const auto vector = static_cast<std::size_t>(vectors[p]);
        if (vectors[p] < 0 || vector >= starts.size())
            throw std::out_of_range("no vector " + std::to_string(vectors[p]));
        out.places.push_back(stops[vector] > starts[vector] ? 1 : 0);
    }
    for (std::size_t n = 0; n < chosen.size(); ++n) {
        const auto place = static_cast<std::size_t>(chosen[n]);
        if (chosen[n] < 0 || place >= vectors.size())
            throw std::out_of_range("no place " + std::to_string(chosen[n]));
        if (out.places[place] == 0) continue;
        out.known.push_back(static_cast<std::int64_t>(n));
        out.vectors.push_back(vectors[place]);
    }
    return out;
}

}  // namespace twofold
