#include "arrays.hpp"
#include "pools.hpp"

namespace {

using Columns = Array<std::int64_t>;

py::tuple collect(const py::sequence& lists, const Columns& previous, const Columns& next,
                  const Array<bool>& mask, std::size_t reach) {
    const Arrays<std::int64_t> given(lists, "a list");
    const auto before = span_of(previous, "previous");
    const auto after = span_of(next, "next");
    const auto bits = bytes_of(mask, "mask");
    twofold::Pool pool;
    {
        const py::gil_scoped_release nogil;
        pool = twofold::collect(given.spans, before, after, bits, reach);
    }
    return py::make_tuple(array_of(pool.ordinals), array_of(pool.chosen), array_of(pool.previous),
                          array_of(pool.next));
}

py::array_t<double> turn_terms(const Columns& ordinals, const Columns& chosen, const Columns& previous,
                               const Columns& next, const Array<double>& base,
                               const Array<std::int32_t>& tokens, const Array<bool>& asks,
                               const Array<bool>& has_role, double previous_weight, double next_weight,
                               double second_previous_weight, double second_next_weight, double answer_weight,
                               double role_next_weight, double gate) {
    const twofold::PoolView pool = pool_of(ordinals, chosen, previous, next);
    const auto scores = span_of(base, "base");
    const auto sizes = span_of(tokens, "tokens");
    const auto questions = bytes_of(asks, "asks");
    const auto roles = bytes_of(has_role, "has_role");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::turn_terms(pool, scores, sizes, questions, roles,
                                  {previous_weight, next_weight, second_previous_weight, second_next_weight,
                                   answer_weight, role_next_weight, gate});
    }
    return array_of(out);
}

py::array_t<double> session_terms(const Columns& ordinals, const Columns& chosen, const Columns& previous,
                                  const Columns& next, const Array<double>& base, const Columns& sessions,
                                  double weight, std::size_t top) {
    const twofold::PoolView pool = pool_of(ordinals, chosen, previous, next);
    const auto scores = span_of(base, "base");
    const auto codes = span_of(sessions, "sessions");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::session_terms(pool, scores, codes, weight, top);
    }
    return array_of(out);
}

}  // namespace

void bind_turns(py::module_& m) {
    m.def("collect", &collect, py::arg("lists"), py::arg("previous").noconvert(), py::arg("next").noconvert(),
          py::arg("mask").noconvert(), py::kw_only(), py::arg("reach"),
          "Union of row lists with the turns around them: (ordinals, chosen, previous, next), places in "
          "ordinals.");
    m.def("turn_terms", &turn_terms, py::arg("ordinals").noconvert(), py::arg("chosen").noconvert(),
          py::arg("previous").noconvert(), py::arg("next").noconvert(), py::arg("base").noconvert(),
          py::arg("tokens").noconvert(), py::arg("asks").noconvert(), py::arg("has_role").noconvert(),
          py::kw_only(), py::arg("previous_weight"), py::arg("next_weight"),
          py::arg("second_previous_weight"), py::arg("second_next_weight"), py::arg("answer_weight"),
          py::arg("role_next_weight"), py::arg("gate"),
          "What the turns around each chosen row of a pool add to its score.");
    m.def("session_terms", &session_terms, py::arg("ordinals").noconvert(), py::arg("chosen").noconvert(),
          py::arg("previous").noconvert(), py::arg("next").noconvert(), py::arg("base").noconvert(),
          py::arg("sessions").noconvert(), py::kw_only(), py::arg("weight"), py::arg("top"),
          "weight * mean of the best `top` scores among the chosen rows of each row's session.");
}
