// Strings as they lie in a file: one blob, where each begins, and a hash table from a string to its number. Also
// the checksum of such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace twofold {

/// 64 bits that any change of up to 8 neighbouring bytes alters for certain, any other change but for one in
/// 2^64. The same on every machine; part of the file format. Not for secrets: collisions can be made on purpose.
[[nodiscard]] std::uint64_t checksum(std::span<const std::uint8_t> bytes) noexcept;

/// A view of n strings; the arrays belong to the caller and must outlive it.
class Strings {
  public:
    /// `offsets`: n + 1 positions in `blob`, ascending from 0. `slots`: what slots_of() gives, or empty, and then
    /// find() finds nothing. Throws std::invalid_argument where they contradict each other.
    Strings(std::span<const std::uint8_t> blob, std::span<const std::int64_t> offsets,
            std::span<const std::uint32_t> slots);

    [[nodiscard]] std::size_t size() const noexcept { return offsets_.size() - 1; }
    /// Throws std::out_of_range.
    [[nodiscard]] std::string_view at(std::size_t i) const;
    /// The number of a string.
    [[nodiscard]] std::optional<std::uint32_t> find(std::string_view text) const noexcept;

    /// Open addressing: a power of two of slots, at least twice the strings, each 0 or a number + 1. Of equal
    /// strings the first is found.
    [[nodiscard]] static std::vector<std::uint32_t> slots_of(std::span<const std::uint8_t> blob,
                                                             std::span<const std::int64_t> offsets);

  private:
    [[nodiscard]] std::string_view text_of(std::size_t i) const noexcept;

    std::span<const std::uint8_t> blob_;
    std::span<const std::int64_t> offsets_;
    std::span<const std::uint32_t> slots_;
};

}  // namespace twofold
