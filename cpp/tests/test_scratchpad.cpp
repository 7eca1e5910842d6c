#include "twofold/scratchpad.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

using twofold::Scratchpad;
using Removed = std::optional<Scratchpad::Entry>;

/// Keys are numbers that are their own handles; `hash` may be made to collide.
struct Pad {
    Scratchpad pad;
    std::uint64_t spread;

    std::uint64_t hash(std::uintptr_t key) const { return key % spread * 0x9e3779b97f4a7c15ULL; }
    static auto same(std::uintptr_t key) {
        return [key](Scratchpad::Handle stored) { return stored == key; };
    }
    std::uintptr_t get(std::uintptr_t key, double now, Removed& removed) {
        const Scratchpad::Handle* found = pad.get(hash(key), same(key), now, removed);
        return found == nullptr ? 0 : *found;
    }
    std::uintptr_t get(std::uintptr_t key, double now) {
        Removed removed;
        return get(key, now, removed);
    }
    Removed set(std::uintptr_t key, std::uintptr_t value, double now) {
        Removed removed;
        pad.set(hash(key), same(key), {key, value}, now, removed);
        return removed;
    }
    bool erase(std::uintptr_t key, double now) {
        Removed removed;
        return pad.erase(hash(key), same(key), now, removed);
    }
    std::vector<std::uintptr_t> live(double now) {
        Scratchpad::Entry entry{};
        while (pad.pop_expired(now, entry)) {
        }
        std::vector<std::uintptr_t> keys;
        pad.each([&keys](const Scratchpad::Entry& e) {
            keys.push_back(e.key);
            return 0;
        });
        CHECK(keys.size() == pad.size());
        return keys;
    }
};

using Keys = std::vector<std::uintptr_t>;

}  // namespace

TEST_CASE("the least recent entry goes first and an update evicts nobody") {
    Pad pad{{2, Scratchpad::kNoExpiry}, 1000};
    CHECK(!pad.set(1, 10, 0.0));
    CHECK(!pad.set(2, 20, 0.0));
    const Removed replaced = pad.set(1, 11, 0.0);
    REQUIRE(replaced);
    CHECK(replaced->value == 10);
    CHECK(pad.live(0.0) == Keys{2, 1});
    CHECK(pad.get(2, 0.0) == 20);
    const Removed evicted = pad.set(3, 30, 0.0);
    REQUIRE(evicted);
    CHECK(evicted->key == 1);
    CHECK(evicted->value == 11);
    CHECK(pad.live(0.0) == Keys{2, 3});
}

TEST_CASE("time to live counts from the last write or read") {
    Pad pad{{5, 10.0}, 1000};
    pad.set(1, 10, 0.0);
    pad.set(2, 20, 0.0);
    CHECK(pad.get(1, 9.0) == 10);
    CHECK(pad.pad.contains(pad.hash(2), Pad::same(2), 9.0));
    CHECK(!pad.pad.contains(pad.hash(2), Pad::same(2), 10.0));
    CHECK(pad.live(18.5) == Keys{1});
    Removed removed;
    CHECK(pad.get(1, 19.0, removed) == 0);
    REQUIRE(removed);
    CHECK(removed->value == 10);
    CHECK(pad.pad.size() == 0);
}

TEST_CASE("an expired entry makes room and cannot be erased as live") {
    Pad pad{{3, 10.0}, 1000};
    pad.set(1, 10, 0.0);
    pad.set(2, 20, 5.0);
    const Removed evicted = pad.set(3, 30, 11.0);
    REQUIRE(evicted);
    CHECK(evicted->key == 1);
    CHECK(!pad.erase(2, 16.0));
    CHECK(pad.erase(3, 16.0));
    CHECK(pad.pad.size() == 0);
}

TEST_CASE("a clock that steps back revives nothing") {
    Pad pad{{3, 10.0}, 1000};
    pad.set(1, 10, 0.0);
    CHECK(pad.live(10.0).empty());
    pad.set(2, 20, 3.0);
    CHECK(pad.get(2, 19.0) == 20);
}

TEST_CASE("any order of calls equals a plain list, also when all hashes collide") {
    for (const std::uint64_t spread : {1ULL, 3ULL, 1000ULL}) {
        Pad pad{{20, 7.0}, spread};
        struct Plain {
            std::uintptr_t key;
            std::uintptr_t value;
            double deadline;
        };
        std::vector<Plain> plain;
        std::mt19937 random(5);
        double now = 0.0;
        for (std::uintptr_t step = 1; step < 20'000; ++step) {
            now += static_cast<double>(random() % 3) * 0.25;
            std::erase_if(plain, [now](const Plain& p) { return p.deadline <= now; });
            const std::uintptr_t key = 1 + random() % 40;
            const auto at =
                std::find_if(plain.begin(), plain.end(), [key](const Plain& p) { return p.key == key; });
            const bool present = at != plain.end();
            switch (random() % 4) {
                case 0: {
                    const std::uintptr_t expected = present ? at->value : 0;
                    CHECK(pad.get(key, now) == expected);
                    if (present) {
                        plain.erase(at);
                        plain.push_back({key, expected, now + 7.0});
                    }
                    break;
                }
                case 1:
                case 2:
                    pad.set(key, step, now);
                    if (present) plain.erase(at);
                    if (plain.size() == 20) plain.erase(plain.begin());
                    plain.push_back({key, step, now + 7.0});
                    break;
                default:
                    CHECK(pad.erase(key, now) == present);
                    if (present) plain.erase(at);
            }
            if (step % 17 == 0) {
                Keys expected;
                for (const Plain& p : plain) expected.push_back(p.key);
                CHECK(pad.live(now) == expected);
            }
        }
    }
}

TEST_CASE("limits are checked") {
    CHECK_THROWS_AS(Scratchpad(0, 1.0), std::invalid_argument);
    CHECK_THROWS_AS(Scratchpad(1, 0.0), std::invalid_argument);
    CHECK_THROWS_AS(Scratchpad(std::size_t{1} << 40, 1.0), std::invalid_argument);
}
