// Dense numbers for sparse keys in order of first appearance, and positions grouped by them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
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

/// Positions 0 to count - 1 by key, ascending in each group; a position whose key is negative is in none.
class Grouped {
  public:
    template <class KeyOf>
    Grouped(std::size_t count, KeyOf key_of) {
        Slots slots(count);
        std::vector<std::uint32_t> slot_of;
        slot_of.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t key = key_of(i);
            slot_of.push_back(key < 0 ? Slots::kNone : slots.of(key));
            starts_.resize(slots.size() + 1, 0);
            if (key >= 0) ++starts_[slot_of.back()];
        }
        std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
        positions_.resize(starts_.empty() ? 0 : starts_.back());
        for (std::size_t i = count; i-- > 0;) {
            if (slot_of[i] != Slots::kNone) positions_[--starts_[slot_of[i]]] = static_cast<std::uint32_t>(i);
        }
    }

    std::size_t size() const { return starts_.empty() ? 0 : starts_.size() - 1; }

    std::span<std::uint32_t> group(std::size_t g) {
        return {positions_.data() + starts_[g], starts_[g + 1] - starts_[g]};
    }

  private:
    std::vector<std::size_t> starts_;  // one more than there are groups
    std::vector<std::uint32_t> positions_;
};

}  // namespace twofold::detail
