#include "arrays.hpp"
#include "twofold/bits.hpp"

namespace {

using Words = Array<std::uint64_t>;

std::span<const std::uint64_t> flat(const Words& codes, const char* name) {
    if (codes.ndim() != 2) throw py::value_error(std::string(name) + " must have two dimensions");
    return {codes.data(), static_cast<std::size_t>(codes.size())};
}

py::array_t<double> bits_maxsim(const Words& query, const Array<double>& weights, const Words& codes,
                                const Array<std::int64_t>& starts, const Array<std::int64_t>& stops,
                                const std::string& kernel) {
    const auto asked = flat(query, "query");
    const auto held = flat(codes, "codes");
    if (query.shape(1) != codes.shape(1)) throw py::value_error("query and codes differ in width");
    const auto words = static_cast<std::size_t>(codes.shape(1));
    const auto weight = span_of(weights, "weights");
    const auto begin = span_of(starts, "starts");
    const auto end = span_of(stops, "stops");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::bits_maxsim(asked, weight, held, words, begin, end, kernel);
    }
    return array_of(out);
}

py::array_t<double> rarity(const Array<std::int64_t>& document_frequency, double documents) {
    const auto counts = span_of(document_frequency, "document_frequency");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::rarity(counts, documents);
    }
    return array_of(out);
}

py::tuple coded_places(const Array<std::int64_t>& vectors, const Array<bool>& single,
                       const Array<std::int64_t>& chosen, const Array<std::int64_t>& starts,
                       const Array<std::int64_t>& stops) {
    const auto numbers = span_of(vectors, "vectors");
    const auto alone = bytes_of(single, "single");
    const auto places = span_of(chosen, "chosen");
    const auto begin = span_of(starts, "starts");
    const auto end = span_of(stops, "stops");
    twofold::Coded out;
    {
        const py::gil_scoped_release nogil;
        out = twofold::coded_places(numbers, alone, places, begin, end);
    }
    return py::make_tuple(mask_of(out.places), array_of(out.known), array_of(out.vectors));
}

}  // namespace

void bind_bits(py::module_& m) {
    m.def("coded_places", &coded_places, py::arg("vectors").noconvert(), py::arg("single").noconvert(),
          py::arg("chosen").noconvert(), py::arg("starts").noconvert(), py::arg("stops").noconvert(),
          "Places of a pool whose single vector has codes: (flags (p,), numbers of the chosen ones that do, "
          "their "
          "vectors).");
    m.def("bits_maxsim", &bits_maxsim, py::arg("query").noconvert(), py::arg("weights").noconvert(),
          py::arg("codes").noconvert(), py::arg("starts").noconvert(), py::arg("stops").noconvert(),
          py::kw_only(), py::arg("kernel") = "",
          "Late interaction over token codes of one bit a dimension: float64 (r,), the weighted mean over "
          "query codes of the best 1 - 2 * hamming / bits among each row's codes.");
    m.def("rarity", &rarity, py::arg("document_frequency").noconvert(), py::arg("documents"),
          "BM25's inverse document frequency of each count.");
}
