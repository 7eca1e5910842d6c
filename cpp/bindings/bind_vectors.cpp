#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "bind.hpp"
#include "twofold/vectors.hpp"

namespace {

using twofold::Hit;
using twofold::VectorIndex;
using Floats = py::array_t<float, py::array::c_style>;
using Ordinals = py::array_t<std::int64_t, py::array::c_style>;
using Codes = py::array_t<std::int8_t, py::array::c_style>;
using Mask = py::array_t<bool, py::array::c_style>;
using Sums = py::array_t<std::uint64_t, py::array::c_style>;

template <class T>
std::span<const T> view(const py::array_t<T, py::array::c_style>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class T>
std::span<T> fill(py::array_t<T>& array) {
    return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

void expect(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

std::size_t natural(std::int64_t value, const char* message) {
    expect(value >= 0, message);
    return static_cast<std::size_t>(value);
}

void check_width(const VectorIndex& index, const py::array& array, py::ssize_t axes) {
    if (array.ndim() != axes || array.shape(axes - 1) != static_cast<py::ssize_t>(index.dim())) {
        throw std::invalid_argument("expected " + std::to_string(axes) + " axes, the last of " +
                                    std::to_string(index.dim()) + " values");
    }
}

twofold::RowFilter row_filter(const std::optional<Mask>& mask, std::optional<std::int64_t> prefix) {
    twofold::RowFilter filter;
    if (mask) {
        expect(mask->ndim() == 1, "mask must have one axis");
        filter.mask = {reinterpret_cast<const std::uint8_t*>(mask->data()),
                       static_cast<std::size_t>(mask->size())};
    }
    if (prefix) filter.prefix = natural(*prefix, "prefix must not be negative");
    return filter;
}

/// (ordinals, scores) of shape (queries, m), or (m,) for the single query of search.
py::tuple found(const VectorIndex& index, const Floats& queries, std::int64_t k,
                const std::optional<Mask>& mask, std::optional<std::int64_t> prefix) {
    const twofold::RowFilter filter = row_filter(mask, prefix);
    const std::size_t wanted = natural(k, "k must not be negative");
    std::vector<Hit> hits;
    {
        const auto values = view(queries);
        const py::gil_scoped_release unlocked;
        hits = index.search(values, wanted, filter);
    }
    std::vector<py::ssize_t> shape;
    if (queries.ndim() == 2) shape.push_back(queries.shape(0));
    const auto per_query =
        queries.ndim() == 2 && queries.shape(0) == 0
            ? std::size_t{0}
            : hits.size() / (queries.ndim() == 2 ? static_cast<std::size_t>(queries.shape(0)) : 1);
    shape.push_back(static_cast<py::ssize_t>(per_query));
    py::array_t<std::int64_t> ordinals(shape);
    py::array_t<float> scores(shape);
    for (std::size_t i = 0; i < hits.size(); ++i) {
        ordinals.mutable_data()[i] = hits[i].ordinal;
        scores.mutable_data()[i] = hits[i].score;
    }
    return py::make_tuple(ordinals, scores);
}

/// A property that waits for a lock.
template <std::size_t (VectorIndex::*Get)() const>
std::size_t without_gil(const VectorIndex& self) {
    const py::gil_scoped_release unlocked;
    return (self.*Get)();
}

}  // namespace

void bind_vectors(py::module_& m) {
    m.def("kernel", &twofold::kernel_name,
          "The instruction set this process uses: generic, avx2, avx512 or neon. ValueError where "
          "TWOFOLD_KERNEL "
          "names one this machine cannot run.");
    m.def(
        "kernels",
        [] {
            py::list names;
            for (const std::string_view name : twofold::kernel_names())
                names.append(py::str(std::string(name)));
            return names;
        },
        "The instruction sets this machine can run, best first.");

    py::register_exception<twofold::Damaged>(m, "Damaged", PyExc_ValueError);
    py::class_<VectorIndex>(
        m, "VectorIndex", py::module_local(),
        "Exact cosine search over unit float32 rows; a row's ordinal is its position. Safe to "
        "share between threads.")
        .def(py::init([](std::int64_t dim, const std::string& kernel, bool keep_rows) {
                 return std::make_unique<VectorIndex>(natural(dim, "dim must not be negative"), kernel,
                                                      keep_rows);
             }),
             py::arg("dim"), py::kw_only(), py::arg("kernel") = "", py::arg("keep_rows") = true,
             "An empty index of 1 <= dim <= 4096; kernel forces an instruction set for tests. With "
             "keep_rows=False "
             "only the int8 codes stay in memory: candidates() answers, search(), scores() and rows() are a "
             "ValueError.")
        .def(
            "add",
            [](VectorIndex& self, const Floats& rows) {
                check_width(self, rows, 2);
                std::size_t first = 0;
                {
                    const auto values = view(rows);
                    const py::gil_scoped_release unlocked;
                    first = self.add(values);
                }
                py::array_t<std::int64_t> ordinals(rows.shape(0));
                for (py::ssize_t i = 0; i < rows.shape(0); ++i)
                    ordinals.mutable_data()[i] = static_cast<std::int64_t>(first) + i;
                return ordinals;
            },
            py::arg("rows").noconvert(),
            "Appends float32 rows (n, dim), each of norm 1 within 1e-3, and returns their int64 ordinals "
            "(n,). "
            "ValueError names a bad row; then nothing was added.")
        .def(
            "search",
            [](const VectorIndex& self, const Floats& query, std::int64_t k, const std::optional<Mask>& mask,
               std::optional<std::int64_t> prefix) {
                check_width(self, query, 1);
                return found(self, query, k, mask, prefix);
            },
            py::arg("query").noconvert(), py::arg("k"), py::kw_only(),
            py::arg("mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
            "The k best rows for a unit float32 query (dim,): (ordinals int64, scores float32), each (m,), "
            "score "
            "descending, then ordinal; m = min(k, rows that pass). mask (len(index),) bool: True may be "
            "returned. "
            "prefix: only ordinals below it; the mask may then end there.")
        .def(
            "search_many",
            [](const VectorIndex& self, const Floats& queries, std::int64_t k,
               const std::optional<Mask>& mask, std::optional<std::int64_t> prefix) {
                check_width(self, queries, 2);
                return found(self, queries, k, mask, prefix);
            },
            py::arg("queries").noconvert(), py::arg("k"), py::kw_only(),
            py::arg("mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
            "As search for float32 queries (q, dim) in one pass over the codes: arrays (q, m).")
        .def(
            "candidates",
            [](const VectorIndex& self, const Floats& query, std::int64_t k, const std::optional<Mask>& mask,
               std::optional<std::int64_t> prefix) {
                check_width(self, query, 1);
                const twofold::RowFilter filter = row_filter(mask, prefix);
                const std::size_t wanted = natural(k, "k must not be negative");
                std::vector<std::uint32_t> rows;
                {
                    const auto values = view(query);
                    const py::gil_scoped_release unlocked;
                    rows = self.candidates(values, wanted, filter);
                }
                py::array_t<std::int64_t> ordinals(static_cast<py::ssize_t>(rows.size()));
                std::copy(rows.begin(), rows.end(), ordinals.mutable_data());
                return ordinals;
            },
            py::arg("query").noconvert(), py::arg("k"), py::kw_only(),
            py::arg("mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
            "Ascending int64 ordinals that are sure to include the k best rows search() would return: the "
            "first k of "
            "them by score_rows() descending, then ordinal, are the exact answer.")
        .def(
            "scores",
            [](const VectorIndex& self, const Floats& query, const Ordinals& ordinals) {
                check_width(self, query, 1);
                expect(ordinals.ndim() == 1, "ordinals must have one axis");
                py::array_t<float> out(ordinals.size());
                {
                    const auto values = view(query);
                    const auto wanted = view(ordinals);
                    const auto target = fill(out);
                    const py::gil_scoped_release unlocked;
                    self.scores(values, wanted, target);
                }
                return out;
            },
            py::arg("query").noconvert(), py::arg("ordinals").noconvert(),
            "The scores float32 (len(ordinals),) a search gives these rows; an erased row scores 0. "
            "IndexError on a "
            "row that does not exist.")
        .def(
            "rows",
            [](const VectorIndex& self, const Ordinals& ordinals) {
                expect(ordinals.ndim() == 1, "ordinals must have one axis");
                py::array_t<float> out({ordinals.size(), static_cast<py::ssize_t>(self.dim())});
                {
                    const auto wanted = view(ordinals);
                    const auto target = fill(out);
                    const py::gil_scoped_release unlocked;
                    self.rows(wanted, target);
                }
                return out;
            },
            py::arg("ordinals").noconvert(),
            "A float32 copy (len(ordinals), dim) of these rows; erased ones are zero.")
        .def(
            "erase",
            [](VectorIndex& self, const Ordinals& ordinals) {
                expect(ordinals.ndim() == 1, "ordinals must have one axis");
                const auto wanted = view(ordinals);
                const py::gil_scoped_release unlocked;
                self.erase(wanted);
            },
            py::arg("ordinals").noconvert(),
            "Overwrites rows and codes with zeros; they are never returned again and no ordinal moves. "
            "Erasing "
            "twice is allowed.")
        .def(
            "restore",
            [](VectorIndex& self, int file, std::int64_t rows, std::uint64_t codes_at, const Sums& code_sums,
               std::uint64_t rows_at, const Sums& row_sums, const Mask& alive, bool resident,
               bool at_once) {
                expect(code_sums.ndim() == 1 && row_sums.ndim() == 1 && alive.ndim() == 1,
                       "checksums and flags must have one axis");
                const twofold::Stored stored{
                    file,
                    natural(rows, "rows must not be negative"),
                    at_once,
                    resident,
                    codes_at,
                    view(code_sums),
                    rows_at,
                    view(row_sums),
                    {reinterpret_cast<const std::uint8_t*>(alive.data()), static_cast<std::size_t>(alive.size())}};
                const py::gil_scoped_release unlocked;
                self.restore(stored);
            },
            py::arg("file"), py::arg("rows"), py::kw_only(), py::arg("codes_at"),
            py::arg("code_sums").noconvert(), py::arg("rows_at"), py::arg("row_sums").noconvert(),
            py::arg("alive").noconvert(), py::arg("resident") = true, py::arg("at_once") = false,
            "Takes an empty index from an open file (a descriptor, copied): codes at once, float rows when they "
            "are "
            "scored, each checked when it is read. resident=False reads them again each time, at_once=True reads all "
            "of them now. _core.Damaged, a ValueError, now or in a later search.")
        .def(
            "refill",
            [](VectorIndex& self, const Floats& rows) {
                check_width(self, rows, 2);
                const auto values = view(rows);
                const py::gil_scoped_release unlocked;
                self.refill(values);
            },
            py::arg("rows").noconvert(),
            "Float32 rows (n, dim) in place of the n rows of a damaged file, which is let go of.")
        .def(
            "codes",
            [](const VectorIndex& self, std::int64_t first) {
                const std::size_t from = natural(first, "first must not be negative");
                const std::size_t size = self.size();
                const std::size_t rows = from < size ? std::min(std::size_t{256}, size - from) : 0;
                py::array_t<std::uint8_t> out(static_cast<py::ssize_t>(self.code_bytes(rows)));
                const auto target = fill(out);
                const py::gil_scoped_release unlocked;
                self.copy_codes(from, target);
                return out;
            },
            py::arg("first"), "The codes of up to 256 rows from a multiple of 256, for restore: uint8.")
        .def_property_readonly("rows_in_file", &without_gil<&VectorIndex::rows_in_file>,
                               "How many float rows are not in RAM.")
        .def_property_readonly(
            "alive",
            [](const VectorIndex& self) {
                py::array_t<bool> out(static_cast<py::ssize_t>(self.size()));
                const std::span<std::uint8_t> target(reinterpret_cast<std::uint8_t*>(out.mutable_data()),
                                                     static_cast<std::size_t>(out.size()));
                const py::gil_scoped_release unlocked;
                self.alive(target);
                return out;
            },
            "bool (len(self),): False where the row was erased.")
        .def_property_readonly("dim", &VectorIndex::dim, "Values per row.")
        .def_property_readonly("kernel", &VectorIndex::kernel, "The instruction set of this index.")
        .def_property_readonly("nbytes", &without_gil<&VectorIndex::nbytes>, "Bytes of the present rows and their codes.")
        .def("__len__", &VectorIndex::size, py::call_guard<py::gil_scoped_release>());

    m.def(
        "score_rows",
        [](const Floats& query, const Floats& rows, const std::string& kernel) {
            expect(query.ndim() == 1 && rows.ndim() == 2 && rows.shape(1) == query.shape(0),
                   "expected a query (dim,) and rows (n, dim)");
            py::array_t<float> out(rows.shape(0));
            {
                const auto values = view(query);
                const auto source = view(rows);
                const auto target = fill(out);
                const py::gil_scoped_release unlocked;
                twofold::score_rows(values, source, target, kernel);
            }
            return out;
        },
        py::arg("query").noconvert(), py::arg("rows").noconvert(), py::kw_only(), py::arg("kernel") = "",
        "The float32 scores (n,) a search gives rows (n, dim) for a unit query (dim,), bit for bit.");
    m.def(
        "quantize_rows",
        [](const Floats& rows) {
            expect(rows.ndim() == 2, "rows must have two axes");
            py::array_t<std::int8_t> codes({rows.shape(0), rows.shape(1)});
            py::array_t<float> scales(rows.shape(0));
            {
                const auto values = view(rows);
                const auto code_target = fill(codes);
                const auto scale_target = fill(scales);
                const py::gil_scoped_release unlocked;
                twofold::quantize_rows(values, code_target, scale_target);
            }
            return py::make_tuple(codes, scales);
        },
        py::arg("rows").noconvert(),
        "Float32 rows (n, dim) as (int8 codes (n, dim) in [-127, 127], float32 scales (n,)): scale = max|x| "
        "/ 127, "
        "ties to even. ValueError on NaN or infinity.");
    m.def(
        "maxsim",
        [](const Codes& query, const Floats& query_scales, const Codes& docs, const Floats& doc_scales,
           const Ordinals& offsets, const std::string& kernel) {
            expect(query.ndim() == 2 && docs.ndim() == 2, "query and docs must have two axes");
            expect(query.shape(1) == docs.shape(1), "query and docs must share one dimension");
            expect(query_scales.ndim() == 1 && query_scales.shape(0) == query.shape(0),
                   "query_scales must hold one scale per query token");
            expect(doc_scales.ndim() == 1 && doc_scales.shape(0) == docs.shape(0),
                   "doc_scales must hold one scale per document token");
            expect(offsets.ndim() == 1 && offsets.shape(0) >= 1,
                   "offsets must hold one entry more than documents");
            py::array_t<double> out(offsets.shape(0) - 1);
            {
                const twofold::Tokens query_tokens{view(query), view(query_scales)};
                const twofold::Tokens doc_tokens{view(docs), view(doc_scales)};
                const auto bounds = view(offsets);
                const auto target = fill(out);
                const py::gil_scoped_release unlocked;
                twofold::maxsim(query_tokens, doc_tokens, bounds, target, kernel);
            }
            return out;
        },
        py::arg("query").noconvert(), py::arg("query_scales").noconvert(), py::arg("docs").noconvert(),
        py::arg("doc_scales").noconvert(), py::arg("offsets").noconvert(), py::kw_only(),
        py::arg("kernel") = "",
        "Late interaction, float64 (n,): for each document the sum over query tokens of the largest dot "
        "product with "
        "one of its tokens. query int8 (tq, dim) and docs int8 (T, dim) with float32 scales, as "
        "quantize_rows gives "
        "them; document i owns tokens [offsets[i], offsets[i + 1]) of int64 offsets (n + 1,). No tokens: 0.");
}
