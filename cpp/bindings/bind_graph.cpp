#include <pybind11/stl.h>

#include "arrays.hpp"
#include "twofold/graph.hpp"

namespace {

using twofold::Graph;

twofold::GraphScope scope_of(const std::optional<std::size_t>& prefix, const Mask& mask) {
    return {bytes_of(mask, "mask"), mask.has_value(), prefix};
}

void add_edges(Graph& graph, const Array<std::uint32_t>& src, const Array<std::uint32_t>& dst,
               const Array<float>& weight) {
    const auto from = span_of(src, "src");
    const auto to = span_of(dst, "dst");
    const auto weights = span_of(weight, "weight");
    const py::gil_scoped_release nogil;
    graph.add_edges(from, to, weights);
}

py::tuple expand(const Graph& graph, const Array<std::uint32_t>& seeds, std::size_t hops,
                 std::optional<std::size_t> prefix, const Mask& mask, std::optional<std::size_t> limit) {
    const auto starts = span_of(seeds, "seeds");
    const auto scope = scope_of(prefix, mask);
    twofold::Reached out;
    {
        const py::gil_scoped_release nogil;
        out = graph.expand(starts, hops, scope, limit);
    }
    return py::make_tuple(array_of(out.nodes), array_of(out.hops));
}

py::tuple personalized(const Graph& graph, const Array<std::uint32_t>& seeds,
                       const Array<double>& seed_weights, double alpha, double epsilon,
                       std::optional<std::size_t> prefix, const Mask& mask,
                       std::optional<std::size_t> limit) {
    const auto starts = span_of(seeds, "seeds");
    const auto weights = span_of(seed_weights, "seed_weights");
    const auto scope = scope_of(prefix, mask);
    twofold::Ranked out;
    std::vector<std::uint32_t> nodes;
    {
        const py::gil_scoped_release nogil;
        out = graph.personalized(starts, weights, alpha, epsilon, scope, limit);
        nodes.assign(out.ordinals.begin(), out.ordinals.end());
    }
    return py::make_tuple(array_of(nodes), array_of(out.scores));
}

py::array_t<double> pagerank(std::size_t n, const Array<std::uint32_t>& src, const Array<std::uint32_t>& dst,
                             const Array<float>& weight, double damping, double tolerance,
                             std::size_t max_iterations, bool directed) {
    const auto from = span_of(src, "src");
    const auto to = span_of(dst, "dst");
    const auto weights = span_of(weight, "weight");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::pagerank(n, from, to, weights, {damping, tolerance, max_iterations, directed});
    }
    return array_of(out);
}

py::tuple related(const py::sequence& about, const std::vector<double>& weights,
                  const Array<std::uint32_t>& nodes, const Array<std::int32_t>& hops,
                  const Array<std::int64_t>& newest, double step, std::size_t depth) {
    const Arrays<std::int64_t> rows(about, "rows");
    const twofold::Related found{
        rows.spans, weights, span_of(nodes, "nodes"), span_of(hops, "hops"), span_of(newest, "newest"), step};
    twofold::Ranked out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::related(found, depth);
    }
    return pair_of(out);
}

}  // namespace

void bind_graph(py::module_& m) {
    m.def("related", &related, py::arg("about"), py::arg("weights"), py::arg("nodes").noconvert(),
          py::arg("hops").noconvert(), py::arg("newest").noconvert(), py::kw_only(), py::arg("step"),
          py::arg("depth"),
          "Rows about entities by the sum of the entities' weights, and memories reached in more hops by "
          "step / "
          "hops: (rows int64, scores float64 up to 1), the best `depth`.");
    py::class_<Graph>(m, "Graph", py::module_local(),
                      "Undirected weighted graph over dense uint32 nodes; edges are append-only.")
        .def(py::init<>())
        .def("add_edges", &add_edges, py::arg("src").noconvert(), py::arg("dst").noconvert(),
             py::arg("weight").noconvert(), "Append edges; uint32 ends, float32 weights above 0.")
        .def("expand", &expand, py::arg("seeds").noconvert(), py::arg("hops"), py::kw_only(),
             py::arg("prefix") = py::none(), py::arg("mask").noconvert() = py::none(),
             py::arg("limit") = py::none(),
             "Nodes within hops of the seeds: (nodes uint32, hops int32) ordered by (hop, node).")
        .def("personalized", &personalized, py::arg("seeds").noconvert(), py::arg("seed_weights").noconvert(),
             py::kw_only(), py::arg("alpha") = 0.15, py::arg("epsilon") = 1e-4,
             py::arg("prefix") = py::none(), py::arg("mask").noconvert() = py::none(),
             py::arg("limit") = py::none(),
             "Personalised PageRank by forward push: (nodes uint32, scores float64), best first.")
        .def_property_readonly("node_count", &Graph::node_count, "Largest node id + 1.")
        .def_property_readonly("edge_count", &Graph::edge_count, "Number of edges added.");
    m.def("pagerank", &pagerank, py::arg("n"), py::arg("src").noconvert(), py::arg("dst").noconvert(),
          py::arg("weight").noconvert(), py::kw_only(), py::arg("damping") = 0.85,
          py::arg("tolerance") = 1e-8, py::arg("max_iterations") = 100, py::arg("directed") = false,
          "PageRank float64 (n,), summing to 1; ranks of nodes without outgoing edges go to all nodes.");
}
