// Undirected weighted graph over uint32 nodes: breadth-first expansion and PageRank.
// Edges are append-only, so a prefix of them is an earlier state. Memory is proportional to the largest node
// id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "twofold/ranked.hpp"

namespace twofold {

/// Which part of the graph exists. A node at or beyond the end of a mask fails it.
struct GraphScope {
    std::span<const std::uint8_t> mask;  ///< one byte (0 or 1) per node; used when has_mask
    bool has_mask = false;
    std::optional<std::size_t> prefix;  ///< only the first `prefix` edges
};

struct Reached {
    std::vector<std::uint32_t> nodes;
    std::vector<std::int32_t> hops;
};

class Graph {
  public:
    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Appends edges; weights are finite and above 0, node ids below 2^28. All or nothing.
    void add_edges(std::span<const std::uint32_t> src, std::span<const std::uint32_t> dst,
                   std::span<const float> weight);

    /// Nodes within `hops` steps of the seeds (themselves at hop 0), ordered by (hop, node id); at most the
    /// first `limit` of them.
    Reached expand(std::span<const std::uint32_t> seeds, std::size_t hops, const GraphScope& scope,
                   std::optional<std::size_t> limit) const;

    /// Personalised PageRank by forward push: residuals start as the seed weights divided by their sum; a
    /// node whose residual is at least epsilon times its number of edges keeps alpha of it and gives the rest
    /// to its neighbours by edge weight. First in, first out, edges in insertion order. A node without edges
    /// keeps all. Nodes with a score above 0, best first, at most `limit`.
    Ranked personalized(std::span<const std::uint32_t> seeds, std::span<const double> seed_weights,
                        double alpha, double epsilon, const GraphScope& scope,
                        std::optional<std::size_t> limit) const;

    std::size_t node_count() const;  ///< largest node id + 1
    std::size_t edge_count() const;

  private:
    struct Half {  // one end of an edge, as seen from the other
        std::uint32_t node;
        std::uint32_t edge;
        float weight;
    };
    struct Link {  // the same in the overflow: a chain per node, oldest first
        Half half;
        std::uint32_t next;
    };
    struct Chain {
        std::uint32_t first;
        std::uint32_t last;
        std::uint32_t length;
    };
    /// Working arrays of a push, one value per node; all zero between calls, so they can be used again.
    struct Push {
        std::vector<double> residual;
        std::vector<double> score;
        std::vector<double> threshold;  // epsilon * degree; 0 = not looked up yet
        std::vector<std::uint8_t> queued;
        void fit(std::size_t nodes);
    };

    template <class Visit>
    void each_neighbour(std::uint32_t node, std::size_t prefix, Visit visit) const;
    std::size_t degree(std::uint32_t node, std::size_t prefix) const;
    void append_link(std::uint32_t from, const Half& half);
    void rebuild();

    mutable std::shared_mutex mutex_;
    std::size_t nodes_ = 0;
    std::vector<std::uint32_t> src_;
    std::vector<std::uint32_t> dst_;
    std::vector<float> weight_;
    // Compressed rows over the first base_edges_ edges; later ones hang in chains until the next rebuild.
    std::size_t base_edges_ = 0;
    std::vector<std::size_t> offsets_;
    std::vector<Half> halves_;
    std::vector<Chain> chains_;
    std::vector<Link> links_;
    mutable std::mutex pool_mutex_;
    mutable std::vector<Push> pool_;
};

struct PageRankRule {
    double damping = 0.85;
    double tolerance = 1e-8;  ///< stop when the sum of absolute changes is at most this
    std::size_t max_iterations = 100;
    bool directed = false;
};

/// PageRank of n nodes by power iteration from the uniform vector; the rank of nodes without outgoing edges
/// is spread over all nodes. Runs until tolerance or max_iterations, whichever comes first.
std::vector<double> pagerank(std::size_t n, std::span<const std::uint32_t> src,
                             std::span<const std::uint32_t> dst, std::span<const float> weight,
                             const PageRankRule& rule);

/// Rows about the entities named, and rows a step or more away from them.
struct Related {
    std::span<const OrdinalSpan> about;     ///< rows per entity, each row at most once in each
    std::span<const double> weights;        ///< of a row about that entity
    std::span<const std::uint32_t> nodes;   ///< reached, with their hops; even ones are memories, 2 * lineage
    std::span<const std::int32_t> hops;
    std::span<const std::int64_t> newest;   ///< row of a lineage, -1 for none; different lineages, different rows
    double step;                            ///< a row reached in h > 1 hops, about none of the entities, scores step / h
};

/// The best `depth` rows: those about entities by the sum of their weights in the order given. Scaled by the best.
Ranked related(const Related& found, std::size_t depth);

}  // namespace twofold
