#include "twofold/fuse.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "bits.hpp"

namespace {

using Ordinals = std::vector<std::int64_t>;
using Scores = std::vector<double>;

}  // namespace

TEST_CASE("rrf sums reciprocal ranks and breaks ties by ordinal") {
    const Ordinals a = {7, 3, 9};
    const Ordinals b = {3, 5};
    const std::vector<twofold::OrdinalSpan> lists = {a, b};
    const twofold::Ranked fused = twofold::rrf(lists, 60.0, {});
    CHECK(fused.ordinals == Ordinals{3, 7, 5, 9});
    CHECK(fused.scores[0] == 1.0 / 62.0 + 1.0 / 61.0);
    CHECK(fused.scores[2] == 1.0 / 62.0);

    const Scores weights = {0.0, 2.0};
    const twofold::Ranked weighted = twofold::rrf(lists, 0.0, weights);
    CHECK(weighted.ordinals == Ordinals{3, 5, 7, 9});
    CHECK(weighted.scores == Scores{2.0, 1.0, 0.0, 0.0});
    CHECK(twofold::rrf({}, 60.0, {}).ordinals.empty());
}

TEST_CASE("rrf refuses a list with an ordinal twice") {
    const Ordinals twice = {4, 4};
    const std::vector<twofold::OrdinalSpan> lists = {twice};
    CHECK_THROWS_AS(twofold::rrf(lists, 60.0, {}), std::invalid_argument);
    CHECK_THROWS_AS(twofold::rrf({}, -1.0, {}), std::invalid_argument);
}

TEST_CASE("convex normalises each list by its best and clips below zero") {
    const Ordinals a = {1, 2, 3};
    const Scores a_scores = {4.0, 2.0, -1.0};
    const Ordinals b = {2, 8};
    const Scores b_scores = {0.0, -2.0};
    const std::vector<twofold::OrdinalSpan> lists = {a, b};
    const std::vector<twofold::ScoreSpan> scores = {a_scores, b_scores};
    const Scores weights = {0.5, 0.5};
    const twofold::Ranked fused = twofold::convex(lists, scores, weights);
    CHECK(fused.ordinals == Ordinals{1, 2, 3, 8});
    CHECK(fused.scores == Scores{0.5, 0.25, 0.0, 0.0});
    CHECK_THROWS_AS(twofold::convex(lists, scores, {}), std::invalid_argument);
}

TEST_CASE("smooth adds neighbours and the mean of a session's best") {
    const Scores base = {1.0, 2.0, 4.0, 8.0, 16.0};
    const Ordinals previous = {-1, 0, 1, -1, -1};
    const Ordinals next = {1, 2, -1, -1, -1};
    const Ordinals session = {7, 7, 7, 7, -1};
    Scores out(base.size());
    twofold::smooth(base, previous, next, session, {0.5, 0.25, 3.0, 2}, out);
    CHECK(out == Scores{1.0 + 0.5 + 18.0, 2.0 + 0.5 + 1.0 + 18.0, 4.0 + 1.0 + 18.0, 8.0 + 18.0, 16.0});
    const Ordinals outside = {-1, 0, 1, 5, -1};
    CHECK_THROWS_AS(twofold::smooth(base, outside, next, session, {0.5, 0.25, 3.0, 2}, out),
                    std::out_of_range);
    CHECK_THROWS_AS(twofold::smooth(base, previous, next, session, {0.5, 0.25, 3.0, 0}, out),
                    std::invalid_argument);
}

TEST_CASE("top keeps the ordering rule at the cut") {
    const Ordinals ordinals = {9, 8, 7, 6};
    const Scores scores = {1.0, 2.0, 1.0, 1.0};
    const twofold::Ranked best = twofold::top(ordinals, scores, 3);
    CHECK(best.ordinals == Ordinals{8, 6, 7});
    CHECK(twofold::top(ordinals, scores, 0).ordinals.empty());
    CHECK(twofold::top(ordinals, scores, 100).ordinals == Ordinals{8, 6, 7, 9});
    const Scores nan = {1.0, std::numeric_limits<double>::quiet_NaN(), 1.0, 1.0};
    CHECK_THROWS_AS(twofold::top(ordinals, nan, 1), std::invalid_argument);
}

TEST_CASE("fused and smoothed scores have the same bits on every machine") {
    bits::Random random(4);
    std::vector<Ordinals> ordinals(3);
    std::vector<Scores> scores(3);
    for (std::size_t list = 0; list < 3; ++list) {
        for (std::int64_t i = 0; i < 300; ++i) {
            if (random.below(3) == 0) continue;
            ordinals[list].push_back(i);
            scores[list].push_back(random.unit() - 0.1);
        }
    }
    const std::vector<twofold::OrdinalSpan> lists(ordinals.begin(), ordinals.end());
    const std::vector<twofold::ScoreSpan> values(scores.begin(), scores.end());
    const Scores weights = {0.5, 0.3, 0.1};
    const twofold::Ranked reciprocal = twofold::rrf(lists, 10.0, weights);
    const twofold::Ranked summed = twofold::convex(lists, values, weights);
    const std::size_t count = summed.scores.size();
    Ordinals previous(count), next(count), session(count);
    for (std::size_t i = 0; i < count; ++i) {
        previous[i] = static_cast<std::int64_t>(i) - 1;
        next[i] = i + 1 < count ? static_cast<std::int64_t>(i) + 1 : -1;
        session[i] = random.below(20);
    }
    Scores out(count);
    twofold::smooth(summed.scores, previous, next, session, {0.15, 0.1, 0.7, 3}, out);
    CHECK(bits::hash(bits::hash(bits::hash(0, reciprocal.scores), summed.scores), out) ==
          14924787046165766729ULL);
}
