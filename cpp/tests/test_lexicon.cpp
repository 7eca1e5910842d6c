#include "twofold/lexicon.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bits.hpp"

namespace {

using Terms = std::vector<std::uint32_t>;
using Counts = std::vector<float>;
using Ordinals = std::vector<std::int64_t>;
using twofold::Lexicon;

/// Three documents: {1, 2}, {2 2, 3}, {}.
void fill(Lexicon& lexicon) {
    const Terms terms = {1, 2, 2, 3};
    const Counts counts = {1, 1, 2, 1};
    const Ordinals offsets = {0, 2, 4, 4};
    CHECK(lexicon.add(terms, counts, offsets) == 0);
}

twofold::LexiconView view(const twofold::LexiconParts& parts) {
    return {parts.terms, parts.offsets, parts.ordinals, parts.counts, parts.alive};
}

}  // namespace

TEST_CASE("bm25 by hand") {
    Lexicon lexicon;
    fill(lexicon);
    CHECK(lexicon.size() == 3);
    CHECK(lexicon.term_count() == 3);
    const Terms query = {2, 3};
    const twofold::Ranked found = lexicon.search(query, {}, 10, {}, {});
    REQUIRE(found.ordinals == Ordinals{1, 0});
    const double mean = 5.0 / 3.0;
    const double idf2 = std::log(1.0 + 1.5 / 2.5);
    const double idf3 = std::log(1.0 + 2.5 / 1.5);
    const double norm0 = 1.2 * (0.25 + 0.75 * 2.0 / mean);
    const double norm1 = 1.2 * (0.25 + 0.75 * 3.0 / mean);
    CHECK(found.scores[0] ==
          doctest::Approx(idf2 * 2.2 * 2 / (2 + norm1) + idf3 * 2.2 / (1 + norm1)).epsilon(1e-14));
    CHECK(found.scores[1] == doctest::Approx(idf2 * 2.2 / (1 + norm0)).epsilon(1e-14));
    const Ordinals all = {2, 1, 0, 1};
    const std::vector<double> scores = lexicon.scores(query, {}, all, {}, {});
    CHECK(scores == std::vector<double>{0.0, found.scores[0], found.scores[1], found.scores[0]});
}

TEST_CASE("masks, statistics masks and prefixes") {
    Lexicon lexicon;
    fill(lexicon);
    const Terms query = {2};
    const std::vector<std::uint8_t> second = {0, 1, 1};
    twofold::LexiconScope scope;
    scope.mask = second;
    scope.has_mask = true;
    CHECK(lexicon.search(query, {}, 10, scope, {}).ordinals == Ordinals{1});
    CHECK(lexicon.document_frequency(query, scope) == Ordinals{2});
    scope.stats_mask = second;
    scope.has_stats_mask = true;
    CHECK(lexicon.document_frequency(query, scope) == Ordinals{1});
    CHECK(lexicon.statistics(scope).doc_count == 2);
    CHECK(lexicon.statistics(scope).mean_length == 1.5);
    twofold::LexiconScope early;
    early.prefix = 1;
    CHECK(lexicon.search(query, {}, 10, early, {}).ordinals == Ordinals{0});
    CHECK(lexicon.statistics(early).mean_length == 2.0);
    twofold::LexiconScope none;
    none.has_mask = true;
    CHECK(lexicon.search(query, {}, 10, none, {}).ordinals.empty());
}

TEST_CASE("erasing removes postings and statistics; parts rebuild the same state") {
    Lexicon lexicon;
    fill(lexicon);
    const Ordinals gone = {1, 1};
    lexicon.erase(gone);
    const Terms query = {2, 3};
    CHECK(lexicon.search(query, {}, 10, {}, {}).ordinals == Ordinals{0});
    CHECK(lexicon.document_frequency(query, {}) == Ordinals{1, 0});
    CHECK(lexicon.statistics({}).doc_count == 2);
    CHECK(lexicon.term_count() == 2);
    const twofold::LexiconParts parts = lexicon.parts();
    const Lexicon again(view(parts));
    CHECK(again.search(query, {}, 10, {}, {}).scores == lexicon.search(query, {}, 10, {}, {}).scores);
    CHECK(again.parts().alive == parts.alive);
    twofold::LexiconParts broken = parts;
    broken.ordinals[0] = 1;
    CHECK_THROWS_AS(Lexicon{view(broken)}, std::invalid_argument);
    const Ordinals outside = {3};
    CHECK_THROWS_AS(lexicon.erase(outside), std::out_of_range);
}

TEST_CASE("scores equal search on a large random lexicon, and adding refuses before it changes anything") {
    Lexicon lexicon;
    std::mt19937 random(3);
    std::geometric_distribution<std::uint32_t> term(0.05);
    std::uniform_real_distribution<float> count(0.1F, 3.0F);
    for (int d = 0; d < 2000; ++d) {
        Terms terms;
        for (std::uint32_t t = 0; t < 8; ++t) terms.push_back(term(random) * 8 + t);
        Counts counts;
        for (int t = 0; t < 8; ++t) counts.push_back(count(random));
        const Ordinals offsets = {0, 8};
        lexicon.add(terms, counts, offsets);
    }
    const Terms query = {8, 1, 18, 43, 8};
    const twofold::Ranked found = lexicon.search(query, {}, 300, {}, {});
    REQUIRE(found.ordinals.size() == 300);
    CHECK(lexicon.scores(query, {}, found.ordinals, {}, {}) == found.scores);

    const Terms twice = {5, 5};
    const Counts ones = {1, 1};
    const Ordinals offsets = {0, 2};
    CHECK_THROWS_AS(lexicon.add(twice, ones, offsets), std::invalid_argument);
    CHECK(lexicon.size() == 2000);
}

TEST_CASE("searches run while another thread adds and erases") {
    Lexicon lexicon;
    fill(lexicon);
    const Terms query = {2, 3};
    twofold::LexiconScope early;
    early.prefix = 3;
    const twofold::Ranked wanted = lexicon.search(query, {}, 10, early, {});
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int r = 0; r < 2; ++r) {
        readers.emplace_back([&] {
            while (!done) {
                if (lexicon.search(query, {}, 10, early, {}).scores != wanted.scores) ++wrong;
                lexicon.search(query, {}, 50, {}, {});
            }
        });
    }
    const Terms terms = {2, 9};
    const Counts counts = {1, 2};
    const Ordinals offsets = {0, 2};
    for (std::int64_t i = 0; i < 500; ++i) {
        const Ordinals added = {lexicon.add(terms, counts, offsets)};
        if (i % 5 == 0) lexicon.erase(added);
    }
    done = true;
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
    CHECK(lexicon.statistics({}).doc_count == 403);
}

TEST_CASE("scores have the same bits on every machine") {
    bits::Random random(2);
    Lexicon lexicon;
    for (int d = 0; d < 1000; ++d) {
        Terms terms;
        Counts counts;
        for (std::uint32_t t = 0; t < 10; ++t) {
            terms.push_back(t + 10 * random.below(1 + random.below(12)));
            counts.push_back(static_cast<float>(0.25 + random.unit()));
        }
        const Ordinals offsets = {0, 10};
        lexicon.add(terms, counts, offsets);
    }
    const Terms query = {3, 14, 25, 36, 47, 58};
    const Counts weights = {1.0F, 0.5F, 2.0F, 1.0F, 0.1F, 3.0F};
    const twofold::Ranked found = lexicon.search(query, weights, 200, {}, {});
    REQUIRE(found.ordinals.size() == 200);
    CHECK(bits::hash(bits::hash(0, found.ordinals), found.scores) == 1153729091376548611ULL);
}
