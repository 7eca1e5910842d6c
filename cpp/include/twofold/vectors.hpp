// Exact cosine search over unit float32 rows: a certified int8 scan, then a float32 re-score in one fixed
// lane order, so the answer is the true top k with the same bits on every instruction set. Also MaxSim over
// int8 tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "twofold/topk.hpp"

namespace twofold {

namespace kernels {
struct Kernel;
}

/// The level this process uses: generic, avx2, avx512 or neon. Throws std::invalid_argument where
/// TWOFOLD_KERNEL names a level this machine cannot run.
[[nodiscard]] std::string_view kernel_name();

/// The levels this machine can run, best first.
[[nodiscard]] std::vector<std::string_view> kernel_names();

/// Which rows a search may return. `mask` has one byte per row, not 0 where the row may be returned; its
/// length is the number of rows, or with a prefix anything from the prefix to that number.
struct RowFilter {
    std::optional<std::span<const std::uint8_t>> mask;
    std::optional<std::size_t> prefix;
};

/// Rows in insertion order; a row's ordinal is its position and never changes. Searches may run at the same
/// time as each other; changes wait for them.
class VectorIndex {
  public:
    static constexpr std::size_t kMaxDim = 4096;
    /// Rows and queries must have a norm within this distance of 1.
    static constexpr double kUnitTolerance = 1e-3;

    /// 1 <= dim <= kMaxDim. `kernel` forces a level; empty means the one of this process. Without `keep_rows`
    /// only the codes are kept, a quarter of the memory: then candidates() answers, and search(), scores()
    /// and rows() throw std::invalid_argument.
    explicit VectorIndex(std::size_t dim, std::string_view kernel = {}, bool keep_rows = true);
    ~VectorIndex();
    VectorIndex(const VectorIndex&) = delete;
    VectorIndex& operator=(const VectorIndex&) = delete;

    /// Appends rows.size() / dim() unit rows and returns the ordinal of the first. Throws
    /// std::invalid_argument, naming the row, where one is not finite or not of unit length; then nothing was
    /// added.
    std::size_t add(std::span<const float> rows);

    /// The k best rows for each of queries.size() / dim() unit queries, best first: every query gets
    /// m = min(k, rows that pass) hits, and query i owns hits [i * m, (i + 1) * m).
    [[nodiscard]] std::vector<Hit> search(std::span<const float> queries, std::size_t k,
                                          const RowFilter& filter = {}) const;

    /// Ordinals, ascending, that are sure to include the k best rows: those are the best of them by
    /// score_rows().
    [[nodiscard]] std::vector<std::uint32_t> candidates(std::span<const float> query, std::size_t k,
                                                        const RowFilter& filter = {}) const;

    /// The scores a search would give these rows; an erased row scores 0.
    void scores(std::span<const float> query, std::span<const std::int64_t> ordinals,
                std::span<float> out) const;

    /// Copies rows; an erased row is all zeros. out.size() == ordinals.size() * dim().
    void rows(std::span<const std::int64_t> ordinals, std::span<float> out) const;

    /// Overwrites rows and codes with zeros; they are never returned again. Ordinals of other rows stay.
    void erase(std::span<const std::int64_t> ordinals);

    /// One byte per row for the first out.size() rows: 1, or 0 where the row was erased.
    void alive(std::span<std::uint8_t> out) const;

    [[nodiscard]] std::size_t size() const;
    [[nodiscard]] std::size_t dim() const noexcept { return dim_; }
    /// Bytes that the rows, codes and flags of the present rows take.
    [[nodiscard]] std::size_t nbytes() const;
    [[nodiscard]] std::string_view kernel() const noexcept;

  private:
    struct Segment;
    struct Query;

    [[nodiscard]] const Segment& segment_of(std::size_t row) const;
    [[nodiscard]] const float* row_at(std::size_t row) const;
    void reserve(std::size_t rows);
    void check_ordinals(std::span<const std::int64_t> ordinals) const;
    void check_kept() const;
    [[nodiscard]] std::size_t check_filter(const RowFilter& filter) const;
    [[nodiscard]] Query prepare(std::span<const float> query, std::size_t k) const;
    void scan(std::span<Query> queries, std::size_t limit, const RowFilter& filter,
              std::size_t& passing) const;
    void settle(Query& query) const;

    const std::size_t dim_;
    const std::size_t width_;   // floats of a stored row: dim rounded up to whole cache lines
    const std::size_t groups_;  // lines of a code block: dim / 4 rounded up
    const kernels::Kernel* const kernel_;
    const bool keep_rows_;
    mutable std::shared_mutex mutex_;
    std::size_t size_ = 0;
    std::vector<Segment> segments_;
};

/// The fixed-lane score of the unit query with each of out.size() rows, bit for bit that of
/// VectorIndex::search.
void score_rows(std::span<const float> query, std::span<const float> rows, std::span<float> out,
                std::string_view kernel = {});

/// Row-wise int8 codes in [-127, 127] with scale max|x| / 127, ties to even; a zero row has scale 0. `scales`
/// gives the number of rows. Throws std::invalid_argument where a value is not finite.
void quantize_rows(std::span<const float> rows, std::span<std::int8_t> codes, std::span<float> scales);

/// Token vectors as quantize_rows gives them: codes has scales.size() rows.
struct Tokens {
    std::span<const std::int8_t> codes;
    std::span<const float> scales;
};

/// Late interaction: out[i] is the sum over query tokens of the largest dot product with a token of document
/// i, which owns document tokens [offsets[i], offsets[i + 1]). Integer dot products, then double; a document
/// without tokens scores 0. `kernel` as in VectorIndex.
void maxsim(const Tokens& query, const Tokens& documents, std::span<const std::int64_t> offsets,
            std::span<double> out, std::string_view kernel = {});

}  // namespace twofold
