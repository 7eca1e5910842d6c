#include <pybind11/stl.h>

#include <memory>
#include <numeric>

#include "arrays.hpp"
#include "twofold/lexicon.hpp"

namespace {

using twofold::Bm25;
using twofold::Lexicon;
using twofold::LexiconScope;
using Terms = Array<std::uint32_t>;
using Weights = std::optional<Array<float>>;
using Prefix = std::optional<std::size_t>;
using Number = std::optional<double>;

LexiconScope scope_of(const Mask& mask, const Mask& stats_mask, const Prefix& prefix) {
    return {bytes_of(mask, "mask"), mask.has_value(), bytes_of(stats_mask, "stats_mask"),
            stats_mask.has_value(), prefix};
}

struct Query {
    Query(const Terms& term_array, const Weights& weight_array, const Mask& mask, const Mask& stats_mask,
          const Prefix& prefix, double k1, double b, const Number& doc_count, const Number& mean_length,
          const Number& longest)
        : terms(span_of(term_array, "terms")),
          scope(scope_of(mask, stats_mask, prefix)),
          model{k1, b, doc_count, mean_length, longest} {
        if (!weight_array) return;
        weights = span_of(*weight_array, "weights");
        if (weights.size() != terms.size()) throw py::value_error("weights must have one value per term");
    }
    std::span<const std::uint32_t> terms;
    std::span<const float> weights;
    LexiconScope scope;
    Bm25 model;
};

py::array_t<std::int64_t> add(Lexicon& lexicon, const Terms& term_ids, const Array<float>& counts,
                              const Array<std::int64_t>& offsets) {
    const auto ids = span_of(term_ids, "term_ids");
    const auto tf = span_of(counts, "counts");
    const auto bounds = span_of(offsets, "offsets");
    std::vector<std::int64_t> ordinals;
    {
        const py::gil_scoped_release nogil;
        const std::int64_t first = lexicon.add(ids, tf, bounds);
        ordinals.resize(bounds.size() - 1);
        std::iota(ordinals.begin(), ordinals.end(), first);
    }
    return array_of(ordinals);
}

py::tuple search(const Lexicon& lexicon, const Terms& terms, std::size_t k, const Weights& weights,
                 const Mask& mask, const Mask& stats_mask, const Prefix& prefix, double k1, double b,
                 const Number& doc_count, const Number& mean_length, const Number& longest) {
    const Query query(terms, weights, mask, stats_mask, prefix, k1, b, doc_count, mean_length, longest);
    twofold::Ranked out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.search(query.terms, query.weights, k, query.scope, query.model);
    }
    return pair_of(out);
}

py::array_t<double> scores(const Lexicon& lexicon, const Terms& terms, const Array<std::int64_t>& ordinals,
                           const Weights& weights, const Mask& mask, const Mask& stats_mask,
                           const Prefix& prefix, double k1, double b, const Number& doc_count,
                           const Number& mean_length, const Number& longest) {
    const Query query(terms, weights, mask, stats_mask, prefix, k1, b, doc_count, mean_length, longest);
    const auto rows = span_of(ordinals, "ordinals");
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.scores(query.terms, query.weights, rows, query.scope, query.model);
    }
    return array_of(out);
}

py::array_t<double> group_lengths(const Lexicon& lexicon, const Array<std::int64_t>& groups,
                                  std::size_t count, const Mask& stats_mask, const Prefix& prefix) {
    const auto owners = span_of(groups, "groups");
    const LexiconScope scope = scope_of({}, stats_mask, prefix);
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.group_lengths(owners, count, scope);
    }
    return array_of(out);
}

py::array_t<double> group_scores(const Lexicon& lexicon, const Terms& terms,
                                 const Array<std::int64_t>& groups, const Array<double>& lengths,
                                 const Mask& stats_mask, const Prefix& prefix, double k1, double b,
                                 const Number& longest) {
    const auto ids = span_of(terms, "terms");
    const auto owners = span_of(groups, "groups");
    const auto sizes = span_of(lengths, "lengths");
    const LexiconScope scope = scope_of({}, stats_mask, prefix);
    std::vector<double> out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.group_scores(ids, owners, sizes, scope, {k1, b, {}, {}, longest});
    }
    return array_of(out);
}

py::array_t<std::int64_t> document_frequency(const Lexicon& lexicon, const Terms& terms,
                                             const Mask& stats_mask, const Prefix& prefix) {
    const auto ids = span_of(terms, "terms");
    const LexiconScope scope = scope_of({}, stats_mask, prefix);
    std::vector<std::int64_t> out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.document_frequency(ids, scope);
    }
    return array_of(out);
}

py::tuple statistics(const Lexicon& lexicon, const Mask& stats_mask, const Prefix& prefix) {
    const LexiconScope scope = scope_of({}, stats_mask, prefix);
    twofold::LexiconStatistics out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.statistics(scope);
    }
    return py::make_tuple(out.doc_count, out.mean_length);
}

void erase(Lexicon& lexicon, const Array<std::int64_t>& ordinals) {
    const auto rows = span_of(ordinals, "ordinals");
    const py::gil_scoped_release nogil;
    lexicon.erase(rows);
}

py::dict parts(const Lexicon& lexicon) {
    twofold::LexiconParts out;
    {
        const py::gil_scoped_release nogil;
        out = lexicon.parts();
    }
    py::dict arrays;
    arrays["terms"] = array_of(out.terms);
    arrays["offsets"] = array_of(out.offsets);
    arrays["ordinals"] = array_of(out.ordinals);
    arrays["counts"] = array_of(out.counts);
    arrays["alive"] = mask_of(out.alive);
    return arrays;
}

std::unique_ptr<Lexicon> from_parts(const Terms& terms, const Array<std::int64_t>& offsets,
                                    const Array<std::int64_t>& ordinals, const Array<float>& counts,
                                    const Array<bool>& alive) {
    const auto ids = span_of(terms, "terms");
    const auto bounds = span_of(offsets, "offsets");
    const auto rows = span_of(ordinals, "ordinals");
    const auto tf = span_of(counts, "counts");
    const auto living = span_of(alive, "alive");
    const py::gil_scoped_release nogil;
    return std::make_unique<Lexicon>(twofold::LexiconView{
        ids,
        bounds,
        rows,
        tf,
        {static_cast<const std::uint8_t*>(static_cast<const void*>(living.data())), living.size()}});
}

}  // namespace

void bind_lexicon(py::module_& m) {
    py::class_<Lexicon>(
        m, "Lexicon", py::module_local(),
        "BM25 over postings of uint32 term ids; append-only, readable as of any prefix of documents.")
        .def(py::init<>())
        .def("add", &add, py::arg("term_ids").noconvert(), py::arg("counts").noconvert(),
             py::arg("offsets").noconvert(),
             "Add documents: distinct uint32 ids, float32 counts in (0, 1e6], int64 offsets (n + 1,). Gives "
             "ordinals.")
        .def("search", &search, py::arg("terms").noconvert(), py::arg("k"), py::kw_only(),
             py::arg("weights").noconvert() = py::none(), py::arg("mask").noconvert() = py::none(),
             py::arg("stats_mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
             py::arg("k1") = 1.2, py::arg("b") = 0.75, py::arg("doc_count") = py::none(),
             py::arg("mean_length") = py::none(), py::arg("longest") = py::none(),
             "The best k documents with a score above 0: (ordinals int64, scores float64), best first.")
        .def("scores", &scores, py::arg("terms").noconvert(), py::arg("ordinals").noconvert(), py::kw_only(),
             py::arg("weights").noconvert() = py::none(), py::arg("mask").noconvert() = py::none(),
             py::arg("stats_mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
             py::arg("k1") = 1.2, py::arg("b") = 0.75, py::arg("doc_count") = py::none(),
             py::arg("mean_length") = py::none(), py::arg("longest") = py::none(),
             "The scores search gives to these documents, bit for bit; 0 for those it does not return.")
        .def("group_lengths", &group_lengths, py::arg("groups").noconvert(), py::arg("count"), py::kw_only(),
             py::arg("stats_mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
             "Lengths of groups of counted documents, float64 (count,); groups int64, negative for none.")
        .def("group_scores", &group_scores, py::arg("terms").noconvert(), py::arg("groups").noconvert(),
             py::arg("lengths").noconvert(), py::kw_only(), py::arg("stats_mask").noconvert() = py::none(),
             py::arg("prefix") = py::none(), py::arg("k1") = 1.2, py::arg("b") = 0.75,
             py::arg("longest") = py::none(),
             "BM25 of groups, each taken as one document, float64 (groups,); lengths as group_lengths gives "
             "them.")
        .def("document_frequency", &document_frequency, py::arg("terms").noconvert(), py::kw_only(),
             py::arg("stats_mask").noconvert() = py::none(), py::arg("prefix") = py::none(),
             "Counted documents that hold each term, int64 (t,).")
        .def("statistics", &statistics, py::kw_only(), py::arg("stats_mask").noconvert() = py::none(),
             py::arg("prefix") = py::none(), "(number of counted documents, their mean length).")
        .def("erase", &erase, py::arg("ordinals").noconvert(),
             "Remove documents from postings and statistics; their ordinals stay taken.")
        .def("parts", &parts, "The whole state as a dict of arrays: terms, offsets, ordinals, counts, alive.")
        .def_static("from_parts", &from_parts, py::arg("terms").noconvert(), py::arg("offsets").noconvert(),
                    py::arg("ordinals").noconvert(), py::arg("counts").noconvert(),
                    py::arg("alive").noconvert(),
                    "Rebuild from parts(); ValueError when they contradict each other.")
        .def("__len__", &Lexicon::size)
        .def_property_readonly("term_count", &Lexicon::term_count, "Number of terms with a posting.");
}
