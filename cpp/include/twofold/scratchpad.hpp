// Bookkeeping of a bounded map with least-recently-used eviction and a time to live that counts from the last
// write or read. Keys and values are opaque handles whose owner releases them; time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace twofold {

class Scratchpad {
  public:
    using Handle = std::uintptr_t;
    struct Entry {
        Handle key;
        Handle value;
    };
    static constexpr double kNoExpiry = std::numeric_limits<double>::infinity();

    /// max_size is 1 to 2^30 entries, ttl above 0 in the unit of `now`; an entry is gone from touched + ttl
    /// on.
    Scratchpad(std::size_t max_size, double ttl);

    /// The value of a live key, which becomes the most recent one and starts a new time to live; else
    /// nullptr. `same(key)` compares a stored key with the one looked for; `hash` is the 64-bit hash of that
    /// one and must be well mixed. An entry found expired is moved to `removed`. The pointer is valid until
    /// the next change.
    template <class Same>
    const Handle* get(std::uint64_t hash, const Same& same, double now, std::optional<Entry>& removed);

    /// Whether the key is live; does not count as a read.
    template <class Same>
    bool contains(std::uint64_t hash, const Same& same, double now);

    /// Stores a value as the most recent entry. A key already stored keeps its stored key: the new one and
    /// the old value go to `removed`. A new key takes the place of the least recent entry when that is
    /// expired or the pad is full. Nothing changes when this throws std::bad_alloc.
    template <class Same>
    void set(std::uint64_t hash, const Same& same, Entry entry, double now, std::optional<Entry>& removed);

    /// Removes a key; true when it was live. An expired one goes to `removed` too.
    template <class Same>
    bool erase(std::uint64_t hash, const Same& same, double now, std::optional<Entry>& removed);

    /// Moves the least recent entry to `removed` if it is expired. Repeat until false before size() and
    /// each().
    bool pop_expired(double now, Entry& removed);

    std::size_t size() const { return size_; }
    std::size_t max_size() const { return max_size_; }
    double ttl() const { return ttl_; }

    /// Calls visit(entry) from the least to the most recent entry until one call gives other than 0; returns
    /// that.
    template <class Visit>
    int each(const Visit& visit) const {
        for (std::uint32_t at = oldest_; at != kNone; at = nodes_[at].newer) {
            if (const int stop = visit(nodes_[at].entry)) return stop;
        }
        return 0;
    }

  private:
    static constexpr std::uint32_t kNone = 0xffffffffU;
    struct Node {
        std::uint64_t hash;
        Entry entry;
        double deadline;
        std::uint32_t older;
        std::uint32_t newer;  // also chains free nodes
    };

    template <class Same>
    std::uint32_t find(std::uint64_t hash, const Same& same) const {
        for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
            const std::uint32_t slot = table_[at];
            if (slot == kNone) return kNone;
            if (nodes_[slot].hash == hash && same(nodes_[slot].entry.key)) return slot;
        }
    }

    // A clock that steps back must not revive entries or break the order by deadline.
    void advance(double now) { latest_ = now > latest_ ? now : latest_; }
    bool expired(std::uint32_t slot) const { return nodes_[slot].deadline <= latest_; }

    void unlink(std::uint32_t slot) {
        Node& node = nodes_[slot];
        (node.older == kNone ? oldest_ : nodes_[node.older].newer) = node.newer;
        (node.newer == kNone ? newest_ : nodes_[node.newer].older) = node.older;
    }
    void link_newest(std::uint32_t slot) {
        Node& node = nodes_[slot];
        node.older = newest_;
        node.newer = kNone;
        (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = slot;
        newest_ = slot;
    }
    void touch(std::uint32_t slot) {
        nodes_[slot].deadline = latest_ + ttl_;
        if (newest_ == slot) return;
        unlink(slot);
        link_newest(slot);
    }
    void drop(std::uint32_t slot);  // leaves the node on the free list
    void reserve_one();             // room for one more node and table entry
    void insert_new(std::uint64_t hash, Entry entry);
    void take_from_table(std::uint32_t slot);

    std::size_t max_size_;
    double ttl_;
    double latest_ = -std::numeric_limits<double>::infinity();
    std::size_t size_ = 0;
    std::uint32_t oldest_ = kNone;
    std::uint32_t newest_ = kNone;
    std::uint32_t free_ = kNone;
    std::size_t mask_;
    std::vector<std::uint32_t> table_;  // open addressing, linear probing, at most half full
    std::vector<Node> nodes_;
};

template <class Same>
const Scratchpad::Handle* Scratchpad::get(std::uint64_t hash, const Same& same, double now,
                                          std::optional<Entry>& removed) {
    const std::uint32_t slot = find(hash, same);
    if (slot == kNone) return nullptr;
    advance(now);
    if (expired(slot)) {
        removed = nodes_[slot].entry;
        drop(slot);
        return nullptr;
    }
    touch(slot);
    return &nodes_[slot].entry.value;
}

template <class Same>
bool Scratchpad::contains(std::uint64_t hash, const Same& same, double now) {
    advance(now);
    const std::uint32_t slot = find(hash, same);
    return slot != kNone && !expired(slot);
}

template <class Same>
void Scratchpad::set(std::uint64_t hash, const Same& same, Entry entry, double now,
                     std::optional<Entry>& removed) {
    const std::uint32_t slot = find(hash, same);
    if (slot != kNone) {
        advance(now);
        removed = Entry{entry.key, nodes_[slot].entry.value};
        nodes_[slot].entry.value = entry.value;
        touch(slot);
        return;
    }
    const double before = latest_;
    advance(now);
    if (size_ == max_size_ || (size_ > 0 && expired(oldest_))) {
        removed = nodes_[oldest_].entry;
        drop(oldest_);
    } else {
        try {
            reserve_one();
        } catch (...) {
            latest_ = before;
            throw;
        }
    }
    insert_new(hash, entry);
}

template <class Same>
bool Scratchpad::erase(std::uint64_t hash, const Same& same, double now, std::optional<Entry>& removed) {
    advance(now);
    const std::uint32_t slot = find(hash, same);
    if (slot == kNone) return false;
    removed = nodes_[slot].entry;
    const bool live = !expired(slot);
    drop(slot);
    return live;
}

}  // namespace twofold
