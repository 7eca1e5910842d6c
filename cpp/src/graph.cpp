#include "twofold/graph.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "select.hpp"
#include "slots.hpp"

namespace twofold {
namespace {

constexpr std::uint32_t kNone = 0xffffffffU;
constexpr std::size_t kMostNodes = std::size_t{1} << 28;
constexpr std::size_t kMostEdges = 0x7fffffffU;

bool passes(const GraphScope& scope, std::size_t node) {
    return !scope.has_mask || (node < scope.mask.size() && scope.mask[node] != 0);
}

void check_edges(std::span<const std::uint32_t> src, std::span<const std::uint32_t> dst,
                 std::span<const float> weight) {
    if (src.size() != dst.size() || src.size() != weight.size()) {
        throw std::invalid_argument("src, dst and weight must have one value per edge");
    }
    for (const float value : weight) {
        if (!(std::isfinite(value) && value > 0.0F)) {
            throw std::invalid_argument("edge weights must be finite and above 0");
        }
    }
}

class Bits {
  public:
    explicit Bits(std::size_t size) : words_((size + 63) / 64, 0) {}
    bool get(std::size_t i) const { return (words_[i / 64] >> (i % 64) & 1U) != 0; }
    void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
    std::size_t words() const { return words_.size(); }

    /// Appends the set positions in ascending order and clears them.
    void drain(std::vector<std::uint32_t>& out) {
        for (std::size_t w = 0; w < words_.size(); ++w) {
            for (std::uint64_t word = words_[w]; word != 0; word &= word - 1) {
                out.push_back(
                    static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
            }
            words_[w] = 0;
        }
    }

  private:
    std::vector<std::uint64_t> words_;
};

}  // namespace

void Graph::Push::fit(std::size_t nodes) {
    residual.resize(nodes, 0.0);
    score.resize(nodes, 0.0);
    threshold.resize(nodes, 0.0);
    queued.resize(nodes, 0);
}

template <class Visit>
void Graph::each_neighbour(std::uint32_t node, std::size_t prefix, Visit visit) const {
    if (node + std::size_t{1} < offsets_.size()) {
        const Half* const end = halves_.data() + offsets_[node + std::size_t{1}];
        for (const Half* half = halves_.data() + offsets_[node]; half != end; ++half) {
            if (half->edge >= prefix) return;
            visit(*half);
        }
    }
    if (links_.empty() || node >= chains_.size()) return;
    for (std::uint32_t at = chains_[node].first; at != kNone; at = links_[at].next) {
        if (links_[at].half.edge >= prefix) return;
        visit(links_[at].half);
    }
}

std::size_t Graph::degree(std::uint32_t node, std::size_t prefix) const {
    if (prefix < src_.size()) {
        std::size_t count = 0;
        each_neighbour(node, prefix, [&count](const Half&) { ++count; });
        return count;
    }
    const std::size_t after = node + std::size_t{1};
    const std::size_t base = after < offsets_.size() ? offsets_[after] - offsets_[node] : 0;
    return base + (node < chains_.size() ? chains_[node].length : 0);
}

void Graph::append_link(std::uint32_t from, const Half& half) {
    const auto at = static_cast<std::uint32_t>(links_.size());
    links_.push_back({half, kNone});
    Chain& chain = chains_[from];
    (chain.length == 0 ? chain.first : links_[chain.last].next) = at;
    chain.last = at;
    ++chain.length;
}

void Graph::rebuild() {
    const std::size_t edges = src_.size();
    std::vector<std::size_t> offsets(nodes_ + 1, 0);
    for (std::size_t e = 0; e < edges; ++e) {
        ++offsets[src_[e] + std::size_t{1}];
        if (dst_[e] != src_[e]) ++offsets[dst_[e] + std::size_t{1}];
    }
    for (std::size_t i = 0; i < nodes_; ++i) offsets[i + 1] += offsets[i];
    std::vector<Half> halves(offsets[nodes_]);
    std::vector<std::size_t> at(offsets.begin(), offsets.end() - 1);
    for (std::size_t e = 0; e < edges; ++e) {
        const auto edge = static_cast<std::uint32_t>(e);
        halves[at[src_[e]]++] = {dst_[e], edge, weight_[e]};
        if (dst_[e] != src_[e]) halves[at[dst_[e]]++] = {src_[e], edge, weight_[e]};
    }
    std::vector<Chain> chains(nodes_, Chain{kNone, kNone, 0});
    offsets_ = std::move(offsets);
    halves_ = std::move(halves);
    chains_ = std::move(chains);
    links_.clear();
    base_edges_ = edges;
}

void Graph::add_edges(std::span<const std::uint32_t> src, std::span<const std::uint32_t> dst,
                      std::span<const float> weight) {
    check_edges(src, dst, weight);
    std::size_t nodes = 0;
    for (std::size_t e = 0; e < src.size(); ++e) {
        nodes = std::max(nodes, std::size_t{std::max(src[e], dst[e])} + 1);
    }
    if (nodes > kMostNodes) throw std::length_error("node ids must be below 2^28; number the nodes densely");

    const std::unique_lock lock(mutex_);
    if (src.size() > kMostEdges - src_.size())
        throw std::length_error("a graph holds at most 2^31 - 1 edges");
    const std::size_t before = src_.size();
    const std::size_t after = before + src.size();
    const std::size_t nodes_before = nodes_;
    const auto grow = [after](auto& values) {
        if (values.capacity() < after) values.reserve(std::max(after, 2 * values.capacity()));
    };
    // Everything that can run out of memory comes before the first change.
    grow(src_);
    grow(dst_);
    grow(weight_);
    nodes_ = std::max(nodes_, nodes);
    src_.insert(src_.end(), src.begin(), src.end());
    dst_.insert(dst_.end(), dst.begin(), dst.end());
    weight_.insert(weight_.end(), weight.begin(), weight.end());
    try {
        // An eighth keeps the chains short; growing by a factor keeps the cost per edge constant.
        if (after - base_edges_ > base_edges_ / 8 + 1024) {
            rebuild();
            return;
        }
        const std::size_t links = links_.size() + 2 * src.size();
        if (links_.capacity() < links) links_.reserve(std::max(links, 2 * links_.capacity()));
        if (chains_.capacity() < nodes_) chains_.reserve(std::max(nodes_, 2 * chains_.capacity()));
    } catch (...) {
        nodes_ = nodes_before;
        src_.resize(before);
        dst_.resize(before);
        weight_.resize(before);
        throw;
    }
    chains_.resize(nodes_, Chain{kNone, kNone, 0});
    for (std::size_t e = before; e < after; ++e) {
        const auto edge = static_cast<std::uint32_t>(e);
        append_link(src_[e], {dst_[e], edge, weight_[e]});
        if (dst_[e] != src_[e]) append_link(dst_[e], {src_[e], edge, weight_[e]});
    }
}

Reached Graph::expand(std::span<const std::uint32_t> seeds, std::size_t hops, const GraphScope& scope,
                      std::optional<std::size_t> limit) const {
    const std::shared_lock lock(mutex_);
    const std::size_t prefix = std::min(scope.prefix.value_or(src_.size()), src_.size());
    std::vector<std::uint32_t> frontier;
    std::size_t size = nodes_;
    for (const std::uint32_t seed : seeds) {
        if (!passes(scope, seed)) continue;
        if (seed >= kMostNodes) throw std::length_error("node ids must be below 2^28");
        frontier.push_back(seed);
        size = std::max(size, std::size_t{seed} + 1);
    }
    std::sort(frontier.begin(), frontier.end());
    frontier.erase(std::unique(frontier.begin(), frontier.end()), frontier.end());

    Bits seen(size);
    for (const std::uint32_t node : frontier) seen.set(node);
    Bits level(size);
    Reached out;
    const std::size_t most = limit.value_or(size);
    for (std::size_t hop = 0;; ++hop) {
        const std::size_t room = most - out.nodes.size();
        if (frontier.size() > room) frontier.resize(room);
        out.nodes.insert(out.nodes.end(), frontier.begin(), frontier.end());
        out.hops.insert(out.hops.end(), frontier.size(), static_cast<std::int32_t>(hop));
        if (hop == hops || frontier.empty() || out.nodes.size() == most) return out;
        std::vector<std::uint32_t> next;
        for (const std::uint32_t node : frontier) {
            each_neighbour(node, prefix, [&](const Half& half) {
                if (seen.get(half.node)) return;
                seen.set(half.node);  // a masked node too, so that its byte is read once
                if (passes(scope, half.node)) next.push_back(half.node);
            });
        }
        // Either way sorts; reading the bits in order is cheaper once the level is a fair part of the graph.
        if (next.size() * 4 > level.words()) {
            for (const std::uint32_t node : next) level.set(node);
            next.clear();
            level.drain(next);
        } else {
            std::sort(next.begin(), next.end());
        }
        frontier = std::move(next);
    }
}

Ranked Graph::personalized(std::span<const std::uint32_t> seeds, std::span<const double> seed_weights,
                           double alpha, double epsilon, const GraphScope& scope,
                           std::optional<std::size_t> limit) const {
    if (seeds.size() != seed_weights.size()) {
        throw std::invalid_argument("got " + std::to_string(seeds.size()) + " seeds and " +
                                    std::to_string(seed_weights.size()) + " seed weights");
    }
    if (!(alpha > 0.0 && alpha <= 1.0)) throw std::invalid_argument("alpha must be in (0, 1]");
    if (!(epsilon > 0.0 && epsilon <= 1.0)) throw std::invalid_argument("epsilon must be in (0, 1]");
    for (const double weight : seed_weights) {
        if (!(weight >= 0.0 && weight <= 1e100)) {
            throw std::invalid_argument("seed weights must be finite and not negative");
        }
    }
    const std::shared_lock lock(mutex_);
    const std::size_t prefix = std::min(scope.prefix.value_or(src_.size()), src_.size());
    double total = 0.0;
    std::size_t size = nodes_;
    for (std::size_t i = 0; i < seeds.size(); ++i) {
        if (!passes(scope, seeds[i])) continue;
        if (seeds[i] >= kMostNodes) throw std::length_error("node ids must be below 2^28");
        total += seed_weights[i];
        size = std::max(size, std::size_t{seeds[i]} + 1);
    }
    if (!(total > 0.0)) return {};

    Push push;
    {
        const std::lock_guard pool_lock(pool_mutex_);
        if (!pool_.empty()) {
            push = std::move(pool_.back());
            pool_.pop_back();
        }
    }
    push.fit(std::max(size, push.residual.size()));
    std::vector<std::uint32_t> touched;
    std::vector<std::uint32_t> queue;
    const auto receive = [&](std::uint32_t node, double amount) {
        if (push.threshold[node] == 0.0) {
            push.threshold[node] =
                epsilon * static_cast<double>(std::max<std::size_t>(degree(node, prefix), 1));
            touched.push_back(node);
        }
        push.residual[node] += amount;
        if (push.queued[node] == 0 && push.residual[node] >= push.threshold[node]) {
            push.queued[node] = 1;
            queue.push_back(node);
        }
    };
    for (std::size_t i = 0; i < seeds.size(); ++i) {
        if (seed_weights[i] > 0.0 && passes(scope, seeds[i])) receive(seeds[i], seed_weights[i] / total);
    }
    for (std::size_t head = 0; head < queue.size(); ++head) {
        if (head >= 65536 && head * 2 >= queue.size()) {
            queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(head));
            head = 0;
        }
        const std::uint32_t node = queue[head];
        const double amount = push.residual[node];
        push.residual[node] = 0.0;
        push.queued[node] = 0;
        double weights = 0.0;
        each_neighbour(node, prefix, [&](const Half& half) {
            if (passes(scope, half.node)) weights += static_cast<double>(half.weight);
        });
        if (weights == 0.0) {
            push.score[node] += amount;
            continue;
        }
        push.score[node] += alpha * amount;
        const double share = (1.0 - alpha) * amount / weights;
        each_neighbour(node, prefix, [&](const Half& half) {
            if (passes(scope, half.node)) receive(half.node, share * static_cast<double>(half.weight));
        });
    }
    std::vector<detail::Scored> items;
    items.reserve(touched.size());
    for (const std::uint32_t node : touched) {
        if (push.score[node] > 0.0) items.push_back({push.score[node], static_cast<std::int64_t>(node)});
        push.residual[node] = 0.0;
        push.score[node] = 0.0;
        push.threshold[node] = 0.0;
    }
    {
        constexpr std::size_t kMostPooled = 8;
        const std::lock_guard pool_lock(pool_mutex_);
        if (pool_.size() < kMostPooled) pool_.push_back(std::move(push));
    }
    detail::keep_best(items, limit.value_or(items.size()));
    return detail::to_ranked(items);
}

std::size_t Graph::node_count() const {
    const std::shared_lock lock(mutex_);
    return nodes_;
}

std::size_t Graph::edge_count() const {
    const std::shared_lock lock(mutex_);
    return src_.size();
}

std::vector<double> pagerank(std::size_t n, std::span<const std::uint32_t> src,
                             std::span<const std::uint32_t> dst, std::span<const float> weight,
                             const PageRankRule& rule) {
    check_edges(src, dst, weight);
    if (n > kMostNodes) throw std::length_error("n must be at most 2^28");
    if (src.size() > kMostEdges) throw std::length_error("pagerank takes at most 2^31 - 1 edges");
    if (!(rule.damping >= 0.0 && rule.damping < 1.0))
        throw std::invalid_argument("damping must be in [0, 1)");
    if (!(rule.tolerance >= 0.0)) throw std::invalid_argument("tolerance must not be negative");
    for (std::size_t e = 0; e < src.size(); ++e) {
        const std::uint32_t largest = std::max(src[e], dst[e]);
        if (largest >= n) {
            throw std::out_of_range("edge " + std::to_string(e) + " has node " + std::to_string(largest) +
                                    ", not below n = " + std::to_string(n));
        }
    }
    if (n == 0) return {};

    struct In {
        std::uint32_t node;
        float weight;
    };
    const bool both = !rule.directed;
    std::vector<std::uint32_t> lengths(n, 0);
    std::vector<double> outgoing(n, 0.0);
    const auto each_arc = [&](auto visit) {
        for (std::size_t e = 0; e < src.size(); ++e) {
            visit(src[e], dst[e], weight[e]);
            if (both && src[e] != dst[e]) visit(dst[e], src[e], weight[e]);
        }
    };
    each_arc([&](std::uint32_t from, std::uint32_t to, float w) {
        ++lengths[to];
        outgoing[from] += static_cast<double>(w);
    });
    // Rows lie in the order of their length, nodes ascending: loops of equal length in a row are predicted.
    std::vector<std::uint32_t> order(n);
    {
        const std::uint32_t longest = *std::max_element(lengths.begin(), lengths.end());
        std::vector<std::uint32_t> place(longest + std::size_t{2}, 0);
        for (std::size_t i = 0; i < n; ++i) ++place[lengths[i] + std::size_t{1}];
        for (std::size_t length = 0; length <= longest; ++length) place[length + 1] += place[length];
        for (std::size_t i = 0; i < n; ++i) order[place[lengths[i]]++] = static_cast<std::uint32_t>(i);
    }
    std::vector<std::uint32_t> at(n);
    std::vector<std::uint32_t> ends(n);  // of the row of order[i]
    std::uint32_t end = 0;
    for (std::size_t i = 0; i < n; ++i) {
        at[order[i]] = end;
        end += lengths[order[i]];
        ends[i] = end;
    }
    std::vector<In> arcs(end);
    each_arc([&](std::uint32_t from, std::uint32_t to, float w) { arcs[at[to]++] = {from, w}; });
    std::vector<std::uint32_t> dangling;
    for (std::size_t i = 0; i < n; ++i) {
        if (outgoing[i] == 0.0) dangling.push_back(static_cast<std::uint32_t>(i));
    }

    const auto count = static_cast<double>(n);
    std::vector<double> rank(n, 1.0 / count);
    std::vector<double> share(n);
    std::vector<double> next(n);
    for (std::size_t iteration = 0; iteration < rule.max_iterations; ++iteration) {
        double lost = 0.0;
        for (const std::uint32_t node : dangling) lost += rank[node];
        for (std::size_t i = 0; i < n; ++i) share[i] = outgoing[i] > 0.0 ? rank[i] / outgoing[i] : 0.0;
        const double base = (1.0 - rule.damping) / count + rule.damping * (lost / count);
        std::size_t a = 0;
        for (std::size_t i = 0; i < n; ++i) {
            double sum = 0.0;
            for (; a < ends[i]; ++a) sum += share[arcs[a].node] * static_cast<double>(arcs[a].weight);
            next[order[i]] = base + rule.damping * sum;
        }
        double change[4] = {};  // node i adds to lane i % 4; the lanes are folded at the end
        for (std::size_t i = 0; i < n; ++i) change[i % 4] += std::abs(next[i] - rank[i]);
        rank.swap(next);
        if ((change[0] + change[1]) + (change[2] + change[3]) <= rule.tolerance) break;
    }
    return rank;
}

Ranked related(const Related& found, std::size_t depth) {
    if (found.about.size() != found.weights.size()) throw std::invalid_argument("every entity needs its weight");
    if (found.nodes.size() != found.hops.size()) throw std::invalid_argument("every node needs its hops");
    std::size_t most = found.nodes.size();
    for (const OrdinalSpan rows : found.about) most += rows.size();
    detail::Slots slots(most);
    std::vector<detail::Scored> items;
    items.reserve(most);
    for (std::size_t e = 0; e < found.about.size(); ++e) {
        for (const std::int64_t row : found.about[e]) {
            const std::uint32_t slot = slots.of(row);
            if (slot == items.size()) items.push_back({0.0, row});
            items[slot].score += found.weights[e];
        }
    }
    for (std::size_t i = 0; i < found.nodes.size(); ++i) {
        if (found.nodes[i] % 2 != 0 || found.hops[i] <= 1) continue;
        const std::size_t lineage = found.nodes[i] / 2;
        if (lineage >= found.newest.size()) {
            throw std::out_of_range("node " + std::to_string(found.nodes[i]) + " is no known memory");
        }
        const std::int64_t row = found.newest[lineage];
        if (row < 0) continue;
        const std::uint32_t slot = slots.of(row);
        if (slot == items.size()) items.push_back({found.step / static_cast<double>(found.hops[i]), row});
    }
    detail::keep_best(items, depth);
    Ranked out = detail::to_ranked(items);
    if (!out.scores.empty()) {
        const double best = out.scores.front();
        for (double& score : out.scores) score /= best;
    }
    return out;
}

}  // namespace twofold
