#include <pybind11/stl.h>

#include "arrays.hpp"
#include "twofold/fuse.hpp"

namespace {

constexpr const char* kPair = "a list of convex is a pair (ordinals, scores)";

constexpr const char* kOrdinals = "the ordinals of a list";

py::tuple rrf(const py::sequence& lists, double k, const std::optional<std::vector<double>>& weights) {
    const Arrays<std::int64_t> given(lists, kOrdinals);
    if (weights && weights->size() != given.spans.size()) {
        throw py::value_error("weights must have one value per list");
    }
    const std::vector<double> no_weights;
    twofold::Ranked out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::rrf(given.spans, k, weights ? *weights : no_weights);
    }
    return pair_of(out);
}

py::tuple convex(const py::sequence& lists, const std::vector<double>& weights) {
    Arrays<std::int64_t> ordinals;
    Arrays<double> scores;
    for (const py::handle list : lists) {
        if (!py::isinstance<py::sequence>(list)) throw py::type_error(kPair);
        const auto pair = py::reinterpret_borrow<py::sequence>(list);
        if (pair.size() != 2) throw py::value_error(kPair);
        ordinals.add(pair[0], kOrdinals);
        scores.add(pair[1], "the scores of a list");
    }
    twofold::Ranked out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::convex(ordinals.spans, scores.spans, weights);
    }
    return pair_of(out);
}

py::array_t<double> smooth(const Array<double>& scores, const Array<std::int64_t>& previous,
                           const Array<std::int64_t>& next, const Array<std::int64_t>& session,
                           double previous_weight, double next_weight, double session_weight,
                           std::size_t session_top) {
    const auto base = span_of(scores, "scores");
    const auto before = span_of(previous, "previous");
    const auto after = span_of(next, "next");
    const auto codes = span_of(session, "session");
    py::array_t<double> out(scores.size());
    const std::span<double> filled(out.mutable_data(), base.size());
    {
        const py::gil_scoped_release nogil;
        twofold::smooth(base, before, after, codes,
                        {previous_weight, next_weight, session_weight, session_top}, filled);
    }
    return out;
}

py::tuple top(const Array<std::int64_t>& ordinals, const Array<double>& scores, std::size_t k) {
    const auto rows = span_of(ordinals, "ordinals");
    const auto values = span_of(scores, "scores");
    twofold::Ranked out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::top(rows, values, k);
    }
    return pair_of(out);
}

py::array_t<std::int64_t> places(const py::sequence& lists, const std::vector<std::int64_t>& wanted) {
    const Arrays<std::int64_t> given(lists, "a list");
    const auto width = static_cast<py::ssize_t>(wanted.size());
    py::array_t<std::int64_t> out({static_cast<py::ssize_t>(given.spans.size()), width});
    std::int64_t* row = out.mutable_data();
    for (const auto list : given.spans) {
        twofold::places(list, wanted, {row, wanted.size()});
        row += width;
    }
    return out;
}

}  // namespace

void bind_fuse(py::module_& m) {
    m.def("places", &places, py::arg("lists"), py::arg("wanted"),
          "Where each wanted ordinal stands in each int64 list, -1 for nowhere: int64 (lists, wanted).");
    m.def("rrf", &rrf, py::arg("lists"), py::arg("k") = 60.0, py::arg("weights") = py::none(),
          "Reciprocal rank fusion of int64 ordinal arrays, best first: (ordinals, scores), best first.");
    m.def("convex", &convex, py::arg("lists"), py::arg("weights"),
          "Weighted sum of max-normalised scores over the union of (ordinals, scores) lists: (ordinals, "
          "scores).");
    m.def("smooth", &smooth, py::arg("scores").noconvert(), py::arg("previous").noconvert(),
          py::arg("next").noconvert(), py::arg("session").noconvert(), py::kw_only(),
          py::arg("previous_weight"), py::arg("next_weight"), py::arg("session_weight"),
          py::arg("session_top") = 3,
          "Scores plus weighted scores of neighbouring candidates and the mean of their session's best.");
    m.def("top", &top, py::arg("ordinals").noconvert(), py::arg("scores").noconvert(), py::arg("k"),
          "The best k by (score descending, ordinal ascending): (ordinals, scores).");
}
