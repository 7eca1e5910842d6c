#include <pybind11/stl.h>

#include <array>

#include "pools.hpp"
#include "twofold/blend.hpp"

namespace {

py::tuple relevance(const Array<std::int64_t>& chosen, const Array<double>& lexical,
                    const Array<double>& cosine, const Mask& coded,
                    const std::optional<Array<std::int64_t>>& known,
                    const std::optional<Array<double>>& similarity, double lexical_weight,
                    double cosine_weight, double late_cosine_weight, double late_weight, double scale) {
    const auto places = span_of(chosen, "chosen");
    const auto words = span_of(lexical, "lexical");
    const auto meanings = span_of(cosine, "cosine");
    if (coded.has_value() != known.has_value() || coded.has_value() != similarity.has_value()) {
        throw py::value_error("give coded, known and similarity together");
    }
    twofold::LateFound late;
    if (coded)
        late = {bytes_of(coded, "coded"), span_of(*known, "known"), span_of(*similarity, "similarity")};
    twofold::Relevance out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::relevance(places, words, meanings, coded ? &late : nullptr,
                                 {lexical_weight, cosine_weight, late_cosine_weight, late_weight, scale});
    }
    return py::make_tuple(array_of(out.lexical), array_of(out.cosine), array_of(out.late));
}

using Columns = Array<std::int64_t>;

py::tuple fuse(const Columns& ordinals, const Columns& chosen, const Columns& previous, const Columns& next,
               const py::sequence& relevance,
               const std::vector<std::tuple<Columns, Array<double>, double>>& layers,
               const py::sequence& given,
               const std::optional<std::tuple<Array<std::int32_t>, Array<bool>, Array<bool>>>& turns,
               const std::array<double, 7>& turn_weights, const std::optional<Columns>& sessions,
               double session_weight, std::size_t session_top, double session_repeats,
               const std::optional<Array<double>>& logs) {
    const twofold::PoolView pool = pool_of(ordinals, chosen, previous, next);
    const Arrays<double> of_places(relevance, "relevance");
    const Arrays<double> of_candidates(given, "given");
    std::vector<twofold::SparseScores> sparse;
    for (const auto& [rows, scores, weight] : layers) {
        sparse.push_back({span_of(rows, "a layer"), span_of(scores, "a layer"), weight});
    }
    twofold::TurnColumns around{};
    if (turns) {
        const auto& w = turn_weights;
        around = {span_of(std::get<0>(*turns), "tokens"),
                  bytes_of(std::get<1>(*turns), "asks"),
                  bytes_of(std::get<2>(*turns), "has_role"),
                  {w[0], w[1], w[2], w[3], w[4], w[5], w[6]}};
    }
    twofold::SessionColumns together{};
    if (sessions) {
        together = {span_of(*sessions, "sessions"), session_weight, session_top, session_repeats,
                    logs ? span_of(*logs, "logs") : std::span<const double>()};
    }
    twofold::Fused out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::fuse(pool, of_places.spans, sparse, turns ? &around : nullptr,
                            sessions ? &together : nullptr, of_candidates.spans);
    }
    const auto count = static_cast<py::ssize_t>(out.rows.size());
    const auto parts = count == 0 ? 0 : static_cast<py::ssize_t>(out.addends.size()) / count;
    return py::make_tuple(array_of(out.rows), array_of(out.scores),
                          array_of(out.addends).reshape({parts, count}));
}

py::array_t<double> above_mean(const Array<double>& scores, const Columns& groups, const Columns& rows) {
    return array_of(
        twofold::above_mean(span_of(scores, "scores"), span_of(groups, "groups"), span_of(rows, "rows")));
}

double exact_sum(const Array<double>& values) {
    return twofold::exact_sum(span_of(values, "values"));
}

}  // namespace

void bind_blend(py::module_& m) {
    m.def(
        "relevance", &relevance, py::arg("chosen").noconvert(), py::arg("lexical").noconvert(),
        py::arg("cosine").noconvert(), py::arg("coded").noconvert() = py::none(),
        py::arg("known").noconvert() = py::none(), py::arg("similarity").noconvert() = py::none(),
        py::kw_only(), py::arg("lexical_weight"), py::arg("cosine_weight"),
        py::arg("late_cosine_weight") = 0.0, py::arg("late_weight") = 0.0, py::arg("scale") = 1.0,
        "Addends of relevance per place of a pool: lexical, cosine, late; one that does not apply is empty.");
    m.def(
        "fuse", &fuse, py::arg("ordinals").noconvert(), py::arg("chosen").noconvert(),
        py::arg("previous").noconvert(), py::arg("next").noconvert(), py::arg("relevance"), py::kw_only(),
        py::arg("layers"), py::arg("given"), py::arg("turns") = py::none(),
        py::arg("turn_weights") = std::array<double, 7>{}, py::arg("sessions").noconvert() = py::none(),
        py::arg("session_weight") = 0.0, py::arg("session_top") = 1, py::arg("session_repeats") = 0.0,
        py::arg("logs").noconvert() = py::none(),
        "Candidates of a pool, best first: (rows int64 (c,), scores float64 (c,), addends float64 (n, c)).");
    m.def("above_mean", &above_mean, py::arg("scores").noconvert(), py::arg("groups").noconvert(),
          py::arg("rows").noconvert(),
          "For each row (score of its group - the rows' mean) / the best; 0 for rows of no group.");
    m.def("exact_sum", &exact_sum, py::arg("values").noconvert(), "The sum, rounded once.");
}
