#include "arrays.hpp"
#include "twofold/pack.hpp"

namespace {

twofold::Rows rows_of(const Array<float>& vectors) {
    if (vectors.ndim() != 2) throw py::value_error("vectors must have two dimensions");
    return {{vectors.data(), static_cast<std::size_t>(vectors.size())},
            static_cast<std::size_t>(vectors.shape(1))};
}

py::array_t<std::int64_t> mmr(const Array<double>& relevance, const Array<float>& vectors, double lam,
                              std::size_t k) {
    const auto values = span_of(relevance, "relevance");
    const auto rows = rows_of(vectors);
    std::vector<std::int64_t> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::mmr(values, rows, lam, k);
    }
    return array_of(out);
}

py::array_t<std::int64_t> pack(const Array<std::int64_t>& tokens, std::int64_t budget,
                               std::int64_t overhead) {
    const auto costs = span_of(tokens, "tokens");
    std::vector<std::int64_t> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::pack(costs, budget, overhead);
    }
    return array_of(out);
}

py::array_t<std::int64_t> pack_value(const Array<std::int64_t>& tokens, const Array<double>& values,
                                     std::int64_t budget, std::int64_t overhead) {
    const auto costs = span_of(tokens, "tokens");
    const auto worth = span_of(values, "values");
    std::vector<std::int64_t> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::pack_value(costs, worth, budget, overhead);
    }
    return array_of(out);
}

py::array_t<std::int64_t> near_duplicates(const Array<float>& vectors, double threshold) {
    const auto rows = rows_of(vectors);
    std::vector<std::int64_t> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::near_duplicates(rows, threshold);
    }
    return array_of(out);
}

}  // namespace

void bind_pack(py::module_& m) {
    m.def("mmr", &mmr, py::arg("relevance").noconvert(), py::arg("vectors").noconvert(), py::arg("lam"),
          py::arg("k"),
          "Positions by maximal marginal relevance, in the order chosen; vectors are unit rows, lam in [0, "
          "1].");
    m.def(
        "pack", &pack, py::arg("tokens").noconvert(), py::arg("budget"), py::kw_only(),
        py::arg("overhead") = 0,
        "Positions of the items that fit the budget, tried in order; an item that does not fit is skipped.");
    m.def("pack_value", &pack_value, py::arg("tokens").noconvert(), py::arg("values").noconvert(),
          py::arg("budget"), py::kw_only(), py::arg("overhead") = 0,
          "As pack, tried by value per token descending; positions ascending.");
    m.def("near_duplicates", &near_duplicates, py::arg("vectors").noconvert(), py::arg("threshold"),
          "For each unit row the first earlier row, itself no duplicate, with cosine >= threshold, or -1.");
}
