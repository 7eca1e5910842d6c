#include <pybind11/stl.h>

#include "arrays.hpp"
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

py::tuple blend(const py::sequence& addends, std::size_t count) {
    std::vector<Array<double>> held;
    std::vector<std::span<const double>> spans;
    for (const py::handle addend : addends) {
        held.push_back(exact<double>(addend, "an addend"));
        spans.push_back(span_of(held.back(), "an addend"));
    }
    std::vector<double> sums(count);
    std::vector<std::int64_t> order;
    {
        const py::gil_scoped_release nogil;
        order = twofold::blend(spans, sums);
    }
    return py::make_tuple(array_of(order), array_of(sums));
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
    m.def("blend", &blend, py::arg("addends"), py::arg("count"),
          "Sums of addends per candidate and the candidates' order: (order int64, sums float64).");
    m.def("exact_sum", &exact_sum, py::arg("values").noconvert(), "The sum, rounded once.");
}
