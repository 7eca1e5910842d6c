#include "arrays.hpp"
#include "twofold/decay.hpp"

namespace {

/// A number for all rows, or a float64 array with one per row.
class Rate {
  public:
    Rate(const py::object& given, const char* name) {
        if (py::isinstance<py::array>(given)) {
            array_ = exact<double>(given, name);
            values_ = span_of(*array_, name);
        } else {
            scalar_ = PyFloat_AsDouble(given.ptr());
            if (scalar_ == -1.0 && PyErr_Occurred()) throw py::error_already_set();
            values_ = {&scalar_, 1};
        }
    }
    Rate(const Rate&) = delete;
    Rate& operator=(const Rate&) = delete;
    std::span<const double> values() const { return values_; }

  private:
    std::optional<Array<double>> array_;
    double scalar_ = 0.0;
    std::span<const double> values_;
};

py::array_t<double> decay(const Array<double>& age_days, const Array<double>& idle_days,
                          const Array<std::int64_t>& accesses, const Array<std::int64_t>& recent,
                          const py::object& age_rate, const py::object& idle_rate,
                          const py::object& access_boost, const py::object& access_cap,
                          const py::object& recent_boost) {
    const auto age = span_of(age_days, "age_days");
    const auto idle = span_of(idle_days, "idle_days");
    const auto used = span_of(accesses, "accesses");
    const auto used_today = span_of(recent, "recent");
    const Rate rates[] = {{age_rate, "age_rate"},
                          {idle_rate, "idle_rate"},
                          {access_boost, "access_boost"},
                          {access_cap, "access_cap"},
                          {recent_boost, "recent_boost"}};
    py::array_t<double> out(age_days.size());
    const std::span<double> filled(out.mutable_data(), age.size());
    {
        const py::gil_scoped_release nogil;
        twofold::decay(
            age, idle, used, used_today,
            {rates[0].values(), rates[1].values(), rates[2].values(), rates[3].values(), rates[4].values()},
            filled);
    }
    return out;
}

py::array_t<double> strength_rows(const Array<std::int64_t>& rows, const Array<std::int32_t>& lineage,
                                  const Array<std::int32_t>& type, const Array<std::int64_t>& recorded,
                                  const Array<std::int64_t>& count, const Array<std::int64_t>& last,
                                  const Array<std::int64_t>& recent, const Array<double>& rates,
                                  std::int64_t now, double day) {
    if (rates.ndim() != 2 || rates.shape(1) != 5) throw py::value_error("rates must have shape (types, 5)");
    const auto wanted = span_of(rows, "rows");
    const twofold::StrengthColumns columns{
        span_of(lineage, "lineage"), span_of(type, "type"), span_of(recorded, "recorded"),
        span_of(count, "count"),     span_of(last, "last"), span_of(recent, "recent"),
        {rates.data(), static_cast<std::size_t>(rates.size())}};
    py::array_t<double> out(rows.size());
    const std::span<double> filled(out.mutable_data(), wanted.size());
    {
        const py::gil_scoped_release nogil;
        twofold::strength_rows(wanted, columns, now, day, filled);
    }
    return out;
}

}  // namespace

void bind_decay(py::module_& m) {
    m.def("strength_rows", &strength_rows, py::arg("rows").noconvert(), py::arg("lineage").noconvert(),
          py::arg("type").noconvert(), py::arg("recorded").noconvert(), py::arg("count").noconvert(),
          py::arg("last").noconvert(), py::arg("recent").noconvert(), py::arg("rates").noconvert(),
          py::kw_only(), py::arg("now"), py::arg("day"),
          "What `decay` gives for single rows of columns; rates float64 (types, 5), times in units of day.");
    m.def("decay", &decay, py::arg("age_days").noconvert(), py::arg("idle_days").noconvert(),
          py::arg("accesses").noconvert(), py::arg("recent").noconvert(), py::kw_only(),
          py::arg("age_rate") = 0.02, py::arg("idle_rate") = 0.05, py::arg("access_boost") = 0.1,
          py::arg("access_cap") = 0.4, py::arg("recent_boost") = 0.15,
          "Strength in [0, 1] of each row, float64; rates are numbers or float64 arrays with one value per "
          "row.");
}
