// BM25 over postings of uint32 term ids. Append-only: a document's ordinal is its insertion order,
// so a prefix of the ordinals is an earlier state. Searches may run while another thread adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "twofold/ranked.hpp"

namespace twofold {

/// Which documents count. Masks hold one byte per document (0 or 1) or are empty for all; documents at or
/// beyond `prefix` do not exist; documents added after the masks were made fail them.
struct LexiconScope {
    std::span<const std::uint8_t> mask;  ///< documents that may be returned
    bool has_mask = false;
    std::span<const std::uint8_t> stats_mask;  ///< documents that count for frequencies and mean length
    bool has_stats_mask = false;
    std::optional<std::size_t> prefix;
};

struct Bm25 {
    double k1 = 1.2;
    double b = 0.75;
    std::optional<double> doc_count;    ///< replaces the number of counted documents
    std::optional<double> mean_length;  ///< replaces their mean length
    std::optional<double> longest;      ///< longer documents count as this many mean lengths
};

struct LexiconStatistics {
    std::int64_t doc_count = 0;
    double mean_length = 0.0;
};

/// Postings by term: terms ascending, offsets[t]..offsets[t + 1] the postings of terms[t], ordinals
/// ascending.
struct LexiconParts {
    std::vector<std::uint32_t> terms;
    std::vector<std::int64_t> offsets;
    std::vector<std::int64_t> ordinals;
    std::vector<float> counts;
    std::vector<std::uint8_t> alive;
};

struct LexiconView {
    std::span<const std::uint32_t> terms;
    std::span<const std::int64_t> offsets;
    std::span<const std::int64_t> ordinals;
    std::span<const float> counts;
    std::span<const std::uint8_t> alive;
};

/// Lengths are kept in units of 2^-16 of a term, so that their sums do not depend on the order of adding.
class Lexicon {
  public:
    Lexicon() = default;
    /// Rebuilds a lexicon from what parts() gave; std::invalid_argument when the parts contradict each other.
    explicit Lexicon(const LexiconView& parts);
    Lexicon(const Lexicon&) = delete;
    Lexicon& operator=(const Lexicon&) = delete;

    /// Document i has term_ids[offsets[i] .. offsets[i + 1]), no id twice, counts in (0, 1e6].
    /// Returns the ordinal of the first document added. All or nothing.
    std::int64_t add(std::span<const std::uint32_t> term_ids, std::span<const float> counts,
                     std::span<const std::int64_t> offsets);

    /// Removes documents from postings and statistics; their ordinals stay taken. Erasing twice is no error.
    void erase(std::span<const std::int64_t> ordinals);

    /// The best k documents with a score above 0. score(d) is the sum, in the order of `terms`, of
    /// weight * log(1 + (N - df + .5) / (df + .5)) * (k1 + 1) * tf / (tf + k1 (1 - b + b min(length / mean,
    /// longest))). Empty weights mean 1 for every term; df above a given doc_count counts as doc_count.
    Ranked search(std::span<const std::uint32_t> terms, std::span<const float> weights, std::size_t k,
                  const LexiconScope& scope, const Bm25& model) const;

    /// The scores search() gives to these documents, bit for bit; 0 for those it does not return.
    std::vector<double> scores(std::span<const std::uint32_t> terms, std::span<const float> weights,
                               std::span<const std::int64_t> ordinals, const LexiconScope& scope,
                               const Bm25& model) const;

    /// The lengths of groups of documents, each taken as one document: of every group in 0 .. count - 1 the
    /// lengths of the counted documents whose group it is. groups has one value per document, negative for
    /// none; documents beyond it are in none. Throws std::out_of_range for a group of count or more.
    std::vector<double> group_lengths(std::span<const std::int64_t> groups, std::size_t count,
                                      const LexiconScope& scope) const;

    /// BM25 of groups, each taken as one document: terms of a group are the sums over its counted documents,
    /// frequencies (at most their number) and the mean length are over the groups with a length. lengths are
    /// those group_lengths gave.
    std::vector<double> group_scores(std::span<const std::uint32_t> terms,
                                     std::span<const std::int64_t> groups, std::span<const double> lengths,
                                     const LexiconScope& scope, const Bm25& model) const;

    std::vector<std::int64_t> document_frequency(std::span<const std::uint32_t> terms,
                                                 const LexiconScope& scope) const;
    LexiconStatistics statistics(const LexiconScope& scope) const;
    std::size_t size() const;
    std::size_t term_count() const;
    LexiconParts parts() const;

  private:
    struct Posting {
        std::uint32_t ordinal;
        float count;
    };
    /// A growing list, which may begin in memory that it does not own and moves when it outgrows it.
    class Postings {
      public:
        Postings() = default;
        Postings(const Postings&) = delete;
        Postings& operator=(const Postings&) = delete;

        /// Takes `count` postings at `first`, with room for `capacity`, in place of what it has; they outlive it.
        void lend(Posting* first, std::size_t count, std::size_t capacity) noexcept;
        void push_back(const Posting& posting);
        void pop_back() noexcept { --size_; }
        /// Keeps the first `count`.
        void cut(std::size_t count) noexcept { size_ = count; }

        [[nodiscard]] std::size_t size() const noexcept { return size_; }
        [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
        [[nodiscard]] Posting* begin() noexcept { return first_; }
        [[nodiscard]] Posting* end() noexcept { return first_ + size_; }
        [[nodiscard]] const Posting* begin() const noexcept { return first_; }
        [[nodiscard]] const Posting* end() const noexcept { return first_ + size_; }
        [[nodiscard]] const Posting& back() const noexcept { return first_[size_ - 1]; }

      private:
        Posting* first_ = nullptr;
        std::size_t size_ = 0;
        std::size_t capacity_ = 0;
        std::unique_ptr<Posting[]> own_;
    };
    struct Query;

    std::size_t visible(const LexiconScope& scope) const;
    std::span<const Posting> postings_before(std::uint32_t term, std::size_t prefix) const;
    LexiconStatistics statistics_of(const LexiconScope& scope, std::size_t prefix) const;
    Query prepare(std::span<const std::uint32_t> terms, std::span<const float> weights,
                  const LexiconScope& scope, const Bm25& model) const;
    /// Accumulators of a finished search, all zero: clearing what was touched is cheaper than a new block.
    std::vector<double> take_accumulators() const;
    void give_back(std::vector<double>&& accumulators) const;

    mutable std::shared_mutex mutex_;
    std::shared_ptr<void> lent_;  // where lists begin that were not added one by one
    std::unordered_map<std::uint32_t, Postings> postings_;
    std::vector<std::int64_t> length_;  // 2^-16 terms
    std::vector<std::uint8_t> alive_;
    std::vector<std::int64_t> total_;   // length_[0] + ... + length_[i], erased documents left out
    std::vector<std::int64_t> living_;  // documents alive in 0 .. i
    mutable std::mutex pool_mutex_;
    mutable std::vector<std::vector<double>> pool_;
};

}  // namespace twofold
