#include "twofold/scratchpad.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace twofold {
namespace {

constexpr std::size_t kMostEntries = std::size_t{1} << 30;
constexpr std::size_t kFirstTable = 16;

}  // namespace

Scratchpad::Scratchpad(std::size_t max_size, double ttl)
    : max_size_(max_size), ttl_(ttl), mask_(kFirstTable - 1), table_(kFirstTable, kNone) {
    if (max_size < 1 || max_size > kMostEntries) {
        throw std::invalid_argument("max_size must be at least 1 and at most 2^30, got " +
                                    std::to_string(max_size));
    }
    if (!(ttl > 0.0)) throw std::invalid_argument("ttl must be above 0, got " + std::to_string(ttl));
}

void Scratchpad::reserve_one() {
    if (2 * (size_ + 1) > table_.size()) {
        const std::size_t wider = 2 * table_.size();
        std::vector<std::uint32_t> table(wider, kNone);
        for (std::uint32_t slot = oldest_; slot != kNone; slot = nodes_[slot].newer) {
            std::size_t at = nodes_[slot].hash & (wider - 1);
            while (table[at] != kNone) at = (at + 1) & (wider - 1);
            table[at] = slot;
        }
        table_ = std::move(table);
        mask_ = wider - 1;
    }
    if (free_ != kNone) return;
    nodes_.push_back({0, {0, 0}, 0.0, kNone, kNone});
    free_ = static_cast<std::uint32_t>(nodes_.size() - 1);
}

void Scratchpad::insert_new(std::uint64_t hash, Entry entry) {
    const std::uint32_t slot = free_;
    Node& node = nodes_[slot];
    free_ = node.newer;
    node.hash = hash;
    node.entry = entry;
    node.deadline = latest_ + ttl_;
    link_newest(slot);
    std::size_t at = hash & mask_;
    while (table_[at] != kNone) at = (at + 1) & mask_;
    table_[at] = slot;
    ++size_;
}

void Scratchpad::take_from_table(std::uint32_t slot) {
    std::size_t hole = nodes_[slot].hash & mask_;
    while (table_[hole] != slot) hole = (hole + 1) & mask_;
    // Entries after the hole move back unless that would put them before their own first choice.
    for (std::size_t at = (hole + 1) & mask_; table_[at] != kNone; at = (at + 1) & mask_) {
        const std::size_t home = nodes_[table_[at]].hash & mask_;
        if (((at - home) & mask_) >= ((at - hole) & mask_)) {
            table_[hole] = table_[at];
            hole = at;
        }
    }
    table_[hole] = kNone;
}

void Scratchpad::drop(std::uint32_t slot) {
    take_from_table(slot);
    unlink(slot);
    nodes_[slot].newer = free_;
    free_ = slot;
    --size_;
}

bool Scratchpad::pop_expired(double now, Entry& removed) {
    advance(now);
    // Every touch moves an entry to the newest end with the latest deadline, so the expired ones are the
    // oldest.
    if (oldest_ == kNone || !expired(oldest_)) return false;
    removed = nodes_[oldest_].entry;
    drop(oldest_);
    return true;
}

}  // namespace twofold
