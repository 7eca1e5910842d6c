#include "twofold/names.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace twofold {
namespace {

static_assert(std::endian::native == std::endian::little, "the checksum reads words in little endian");

constexpr std::size_t kLanes = 8;
constexpr std::size_t kStep = kLanes * sizeof(std::uint64_t);
constexpr std::uint64_t kOdd = 0xd6e8feb86659fd93U;
constexpr std::uint64_t kSeed = 0x9e6c63d0876a9a47U;

/// For a fixed word a bijection of the lane, and the other way round: no single change is lost.
inline std::uint64_t stir(std::uint64_t lane, std::uint64_t word) noexcept {
    return std::rotl(lane ^ word, 29) * kOdd;
}

std::span<const std::uint8_t> bytes_of(std::string_view text) noexcept {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::uint64_t checksum(std::span<const std::uint8_t> bytes) noexcept {
    std::array<std::uint64_t, kLanes> lanes;
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = kSeed * (2 * i + 1);
    std::array<std::uint64_t, kLanes> words;
    const std::uint8_t* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= kStep; left -= kStep, at += kStep) {
        std::memcpy(words.data(), at, kStep);
        for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = stir(lanes[i], words[i]);
    }
    if (left > 0) {
        words.fill(0);
        std::memcpy(words.data(), at, left);
        for (std::size_t i = 0; i < (left + 7) / 8; ++i) lanes[i] = stir(lanes[i], words[i]);
    }
    std::uint64_t out = std::uint64_t{bytes.size()} * kOdd + kSeed;
    for (const std::uint64_t lane : lanes) out = stir(out, lane ^ (lane >> 32));
    out ^= out >> 31;
    out *= kOdd;
    return out ^ (out >> 29);
}

Strings::Strings(std::span<const std::uint8_t> blob, std::span<const std::int64_t> offsets,
                 std::span<const std::uint32_t> slots)
    : blob_(blob), offsets_(offsets), slots_(slots) {
    if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<std::int64_t>(blob.size())) {
        throw std::invalid_argument("offsets must run from 0 to the end of the blob");
    }
    std::int64_t descends = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i) descends |= offsets[i] - offsets[i - 1];
    if (descends < 0) throw std::invalid_argument("offsets must not descend");
    if (!slots.empty() && (!std::has_single_bit(slots.size()) || slots.size() < 2 * size())) {
        throw std::invalid_argument("slots must be a power of two, at least twice the strings");
    }
}

std::string_view Strings::text_of(std::size_t i) const noexcept {
    return {reinterpret_cast<const char*>(blob_.data()) + offsets_[i],
            static_cast<std::size_t>(offsets_[i + 1] - offsets_[i])};
}

std::string_view Strings::at(std::size_t i) const {
    if (i >= size()) {
        throw std::out_of_range("no string " + std::to_string(i) + " among " + std::to_string(size()));
    }
    return text_of(i);
}

std::optional<std::uint32_t> Strings::find(std::string_view text) const noexcept {
    if (slots_.empty()) return std::nullopt;
    const std::size_t most = slots_.size() - 1;
    std::size_t at = checksum(bytes_of(text)) & most;
    for (std::size_t tried = 0; tried <= most; ++tried, at = (at + 1) & most) {
        const std::uint32_t slot = slots_[at];
        if (slot == 0) return std::nullopt;
        if (slot <= size() && text_of(slot - 1) == text) return slot - 1;
    }
    return std::nullopt;
}

std::vector<std::uint32_t> Strings::slots_of(std::span<const std::uint8_t> blob,
                                             std::span<const std::int64_t> offsets) {
    const Strings strings(blob, offsets, {});
    if (strings.size() >= std::numeric_limits<std::uint32_t>::max() / 4) {
        throw std::length_error("too many strings for one table");
    }
    std::vector<std::uint32_t> slots(std::bit_ceil(2 * strings.size() + 1), 0);
    const std::size_t most = slots.size() - 1;
    for (std::size_t i = 0; i < strings.size(); ++i) {
        const std::string_view text = strings.text_of(i);
        std::size_t at = checksum(bytes_of(text)) & most;
        while (slots[at] != 0 && strings.text_of(slots[at] - 1) != text) at = (at + 1) & most;
        if (slots[at] == 0) slots[at] = static_cast<std::uint32_t>(i + 1);
    }
    return slots;
}

}  // namespace twofold
