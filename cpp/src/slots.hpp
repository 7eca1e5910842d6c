// Dense numbers for sparse keys, in order of first appearance.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace twofold::detail {

/// Open addressing for at most `most` different keys.
class Slots {
  public:
    static constexpr std::uint32_t kNone = 0xffffffffU;

    explicit Slots(std::size_t most) : table_(std::bit_ceil(2 * most + 2), kNone) { keys_.reserve(most); }

    /// The number of a key; a new one gets the next.
    std::uint32_t of(std::int64_t key) {
        std::size_t at =
            (static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15ULL >> 32) & (table_.size() - 1);
        while (table_[at] != kNone && keys_[table_[at]] != key) at = (at + 1) & (table_.size() - 1);
        if (table_[at] == kNone) {
            table_[at] = static_cast<std::uint32_t>(keys_.size());
            keys_.push_back(key);
        }
        return table_[at];
    }

    std::size_t size() const { return keys_.size(); }

  private:
    std::vector<std::uint32_t> table_;
    std::vector<std::int64_t> keys_;
};

}  // namespace twofold::detail
