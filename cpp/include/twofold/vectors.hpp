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
#include <stdexcept>
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

/// A file does not hold what was written into it.
class Damaged : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Where an index lies in a file. The codes are those of copy_codes() one after the other, `code_sums` the
/// checksum of each; rows are dim() floats, `row_sums` the checksum of each. `at_once`: rows are read like the
/// codes. Otherwise a row is read when it is scored; `resident`: then it stays in RAM.
struct Stored {
    int file;
    std::size_t rows;
    bool at_once;
    bool resident;
    std::uint64_t codes_at;
    std::span<const std::uint64_t> code_sums;
    std::uint64_t rows_at;
    std::span<const std::uint64_t> row_sums;
    std::span<const std::uint8_t> alive;  // one byte per row
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

    /// Takes an empty index from a file, each row checked when it is read. The descriptor is copied. Throws
    /// Damaged: here, and then the index is of no use, or in whatever reads a row later.
    void restore(const Stored& stored);

    /// Puts right rows in place of those of a damaged file, all of them, and lets go of the file.
    void refill(std::span<const float> rows);

    /// Bytes of the codes of this many rows, from a multiple of 16.
    [[nodiscard]] std::size_t code_bytes(std::size_t rows) const noexcept;

    /// Codes of up to 256 rows from `first`, a multiple of 256, as they lie in memory.
    void copy_codes(std::size_t first, std::span<std::uint8_t> out) const;

    /// How many rows are in a file only.
    [[nodiscard]] std::size_t rows_in_file() const;

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
    struct Backing;
    struct Scratch {  // rows that are read for one scoring
        std::vector<std::unique_ptr<float[]>> rows;
    };

    [[nodiscard]] const Segment& segment_of(std::size_t row) const;
    [[nodiscard]] float* place_of(std::size_t row) const;
    [[nodiscard]] const float* row_at(std::size_t row, Scratch& scratch) const;
    [[nodiscard]] bool is_alive(std::size_t row) const;
    [[nodiscard]] bool all_present() const;
    void read_rows(const Stored& stored, std::size_t first, std::size_t count);
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
    std::unique_ptr<Backing> backing_;
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
