#include "twofold/names.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Table {
    std::vector<std::uint8_t> blob;
    std::vector<std::int64_t> offsets = {0};
    explicit Table(const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
            blob.insert(blob.end(), text.begin(), text.end());
            offsets.push_back(static_cast<std::int64_t>(blob.size()));
        }
    }
};

std::uint64_t of_counting(std::size_t length) {
    std::vector<std::uint8_t> bytes(length);
    for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::uint8_t>(i % 251);
    return twofold::checksum(bytes);
}

}  // namespace

TEST_CASE("the checksum is the same on every machine") {
    // The same numbers as in tests/core/test_names.py.
    CHECK(of_counting(0) == 0x384CE061FA0471F0U);
    CHECK(of_counting(1) == 0xBB6F08C66D9C39C2U);
    CHECK(of_counting(8) == 0x81A368D90FA2A2B4U);
    CHECK(of_counting(63) == 0x621DF3A50034708FU);
    CHECK(of_counting(64) == 0xE6CA4DC79C9B95F4U);
    CHECK(of_counting(65) == 0x3DA0BE86EE8B1C16U);
    CHECK(of_counting(1000) == 0x4C562DEB8DF123C0U);
}

TEST_CASE("the checksum notices every flipped bit and every zero at the end") {
    std::vector<std::uint8_t> bytes(200, 0x5a);
    const std::uint64_t whole = twofold::checksum(bytes);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
        CHECK(twofold::checksum(bytes) != whole);
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    }
    bytes.push_back(0);
    CHECK(twofold::checksum(bytes) != whole);
}

TEST_CASE("strings are found by what they are") {
    std::vector<std::string> texts;
    for (int i = 0; i < 1000; ++i) texts.push_back("name " + std::to_string(i * 7));
    texts.emplace_back();
    texts.emplace_back("name 7");
    const Table table(texts);
    const auto slots = twofold::Strings::slots_of(table.blob, table.offsets);
    const twofold::Strings strings(table.blob, table.offsets, slots);
    CHECK(strings.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(strings.at(i) == texts[i]);
        CHECK(strings.find(texts[i]) == (i == 1001 ? 1 : i));
    }
    CHECK_FALSE(strings.find("name 1").has_value());
    CHECK_THROWS_AS(static_cast<void>(strings.at(texts.size())), std::out_of_range);
}

TEST_CASE("string tables that contradict themselves are refused") {
    const std::vector<std::uint8_t> blob(2);
    using Offsets = std::vector<std::int64_t>;
    for (const Offsets& offsets : {Offsets{}, Offsets{1, 2}, Offsets{0, 3}, Offsets{0, 2, 1, 2}, Offsets{0, -5, 2}}) {
        CHECK_THROWS_AS(twofold::Strings(blob, offsets, {}), std::invalid_argument);
    }
    const std::vector<std::uint32_t> few(2);
    CHECK_THROWS_AS(twofold::Strings(blob, Offsets{0, 1, 2}, few), std::invalid_argument);
}
