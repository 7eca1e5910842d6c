#include "twofold/graph.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bits.hpp"

namespace {

using Nodes = std::vector<std::uint32_t>;
using Hops = std::vector<std::int32_t>;
using Weights = std::vector<float>;

struct Edges {
    Nodes src;
    Nodes dst;
    Weights weight;
};

Edges random_edges(std::uint32_t nodes, std::size_t count) {
    std::mt19937 random(11);
    std::uniform_int_distribution<std::uint32_t> node(0, nodes - 1);
    std::uniform_real_distribution<float> weight(0.1F, 2.0F);
    Edges out;
    for (std::size_t e = 0; e < count; ++e) {
        out.src.push_back(node(random));
        out.dst.push_back(node(random));
        out.weight.push_back(weight(random));
    }
    return out;
}

void add(twofold::Graph& graph, const Edges& edges, std::size_t first, std::size_t last) {
    const auto part = [first, last](const auto& values) {
        return std::span(values).subspan(first, last - first);
    };
    graph.add_edges(part(edges.src), part(edges.dst), part(edges.weight));
}

}  // namespace

TEST_CASE("expansion is by hop, then node, and respects prefix, mask and limit") {
    twofold::Graph graph;
    const Edges edges = {{5, 5, 1, 2}, {1, 9, 0, 1}, {1, 1, 1, 1}};
    add(graph, edges, 0, 4);
    const Nodes seeds = {5, 5};
    twofold::Reached reached = graph.expand(seeds, 2, {}, {});
    CHECK(reached.nodes == Nodes{5, 1, 9, 0, 2});
    CHECK(reached.hops == Hops{0, 1, 1, 2, 2});
    twofold::GraphScope scope;
    scope.prefix = 3;
    CHECK(graph.expand(seeds, 9, scope, {}).nodes == Nodes{5, 1, 9, 0});
    CHECK(graph.expand(seeds, 9, scope, 2).nodes == Nodes{5, 1});
    CHECK(graph.expand(seeds, 9, scope, 0).nodes.empty());
    const std::vector<std::uint8_t> mask = {1, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    scope.mask = mask;
    scope.has_mask = true;
    CHECK(graph.expand(seeds, 9, scope, {}).nodes == Nodes{5, 9});
    CHECK(graph.expand(seeds, 0, {}, {}).nodes == Nodes{5});
}

TEST_CASE("the overflow chains and the compressed rows give the same answers") {
    const Edges edges = random_edges(300, 5000);
    twofold::Graph whole;
    add(whole, edges, 0, 5000);
    twofold::Graph pieces;
    for (std::size_t at = 0; at < 5000; at += 50) add(pieces, edges, at, at + 50);
    CHECK(pieces.edge_count() == 5000);
    const Nodes seeds = {3, 17};
    const std::vector<double> weights = {1.0, 2.0};
    for (const std::size_t prefix : {0, 1, 1023, 2000, 4999, 5000}) {
        twofold::GraphScope scope;
        scope.prefix = prefix;
        CHECK(whole.expand(seeds, 2, scope, {}).nodes == pieces.expand(seeds, 2, scope, {}).nodes);
        const twofold::Ranked a = whole.personalized(seeds, weights, 0.15, 1e-4, scope, {});
        const twofold::Ranked b = pieces.personalized(seeds, weights, 0.15, 1e-4, scope, {});
        CHECK(a.ordinals == b.ordinals);
        CHECK(a.scores == b.scores);
    }
}

TEST_CASE("personalised rank stays near its seed and sums to at most one") {
    twofold::Graph graph;
    const Edges path = {{0, 1, 2}, {1, 2, 3}, {1, 1, 1}};
    add(graph, path, 0, 3);
    const Nodes seeds = {0};
    const std::vector<double> weights = {3.0};
    const twofold::Ranked ranked = graph.personalized(seeds, weights, 0.5, 1e-9, {}, {});
    CHECK(ranked.ordinals == std::vector<std::int64_t>{0, 1, 2, 3});
    const double sum = std::accumulate(ranked.scores.begin(), ranked.scores.end(), 0.0);
    CHECK(sum <= 1.0);
    CHECK(sum == doctest::Approx(1.0).epsilon(1e-6));
    const std::vector<double> zero = {0.0};
    CHECK(graph.personalized(seeds, zero, 0.5, 1e-9, {}, {}).ordinals.empty());
    const Nodes lonely = {77};
    CHECK(graph.personalized(lonely, weights, 0.5, 1e-9, {}, {}).scores == std::vector<double>{1.0});
    CHECK_THROWS_AS(graph.personalized(seeds, weights, 0.0, 1e-9, {}, {}), std::invalid_argument);
}

TEST_CASE("a long push drops the finished part of its queue and loses nothing") {
    const Edges edges = random_edges(400, 2000);
    twofold::Graph graph;
    add(graph, edges, 0, 2000);
    const Nodes seeds = {1};
    const std::vector<double> weights = {1.0};
    const twofold::Ranked ranked = graph.personalized(seeds, weights, 0.01, 1e-10, {}, {});
    CHECK(std::accumulate(ranked.scores.begin(), ranked.scores.end(), 0.0) ==
          doctest::Approx(1.0).epsilon(1e-5));
}

TEST_CASE("pagerank sums to one, prefers the hub, and follows direction when asked") {
    const Edges star = {{1, 2, 3}, {0, 0, 0}, {1, 1, 1}};
    const std::vector<double> both = twofold::pagerank(5, star.src, star.dst, star.weight, {});
    CHECK(std::accumulate(both.begin(), both.end(), 0.0) == doctest::Approx(1.0));
    CHECK(both[0] > both[1]);
    CHECK(both[1] == both[2]);
    CHECK(both[4] < both[1]);
    twofold::PageRankRule rule;
    rule.directed = true;
    const std::vector<double> directed = twofold::pagerank(5, star.src, star.dst, star.weight, rule);
    CHECK(std::accumulate(directed.begin(), directed.end(), 0.0) == doctest::Approx(1.0));
    CHECK(directed[1] == directed[4]);
    CHECK(directed[0] > directed[1]);
    CHECK_THROWS_AS(twofold::pagerank(3, star.src, star.dst, star.weight, {}), std::out_of_range);
}

TEST_CASE("bad edges are refused before anything changes") {
    twofold::Graph graph;
    const Nodes one = {1};
    const Nodes far = {0xffffffffU};
    const Weights fine = {1.0F};
    const Weights zero = {0.0F};
    CHECK_THROWS_AS(graph.add_edges(one, one, zero), std::invalid_argument);
    CHECK_THROWS_AS(graph.add_edges(one, far, fine), std::length_error);
    CHECK_THROWS_AS(graph.add_edges(one, {}, fine), std::invalid_argument);
    CHECK(graph.edge_count() == 0);
    CHECK(graph.node_count() == 0);
}

TEST_CASE("queries run while another thread adds edges") {
    const Edges edges = random_edges(200, 6000);
    twofold::Graph graph;
    add(graph, edges, 0, 500);
    const Nodes seeds = {4};
    const std::vector<double> weights = {1.0};
    twofold::GraphScope scope;
    scope.prefix = 500;
    const Nodes wanted = graph.expand(seeds, 2, scope, {}).nodes;
    const std::vector<double> scores = graph.personalized(seeds, weights, 0.15, 1e-3, scope, {}).scores;
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int r = 0; r < 2; ++r) {
        readers.emplace_back([&] {
            while (!done) {
                if (graph.expand(seeds, 2, scope, {}).nodes != wanted) ++wrong;
                if (graph.personalized(seeds, weights, 0.15, 1e-3, scope, {}).scores != scores) ++wrong;
            }
        });
    }
    for (std::size_t at = 500; at < 6000; at += 20) add(graph, edges, at, at + 20);
    done = true;
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
}

TEST_CASE("ranks have the same bits on every machine") {
    bits::Random random(3);
    Edges edges;
    for (int e = 0; e < 3000; ++e) {
        edges.src.push_back(random.below(1 + random.below(500)));
        edges.dst.push_back(random.below(500));
        edges.weight.push_back(static_cast<float>(0.1 + random.unit()));
    }
    CHECK(bits::hash(0, twofold::pagerank(510, edges.src, edges.dst, edges.weight, {})) ==
          12335228882354402792ULL);
    twofold::Graph graph;
    add(graph, edges, 0, 3000);
    const Nodes seeds = {7, 450};
    const std::vector<double> weights = {0.3, 0.9};
    const twofold::Ranked found = graph.personalized(seeds, weights, 0.15, 1e-5, {}, {});
    CHECK(bits::hash(bits::hash(0, found.ordinals), found.scores) == 10415507074258453977ULL);
}
