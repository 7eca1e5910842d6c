#include "twofold/lexicon.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "arith.hpp"
#include "pages.hpp"
#include "select.hpp"

namespace twofold {
namespace {

constexpr double kLengthUnit = 0x1p-16;
constexpr float kMostCount = 1e6F;
constexpr std::size_t kMostDocuments = 0x7fffffffU;

/// To the nearest, ties to even, for any count up to kMostCount. Without a call: adding leaves no bits for fractions.
std::int64_t length_units(float count) {
    constexpr double kNoFractions = 0x1.8p52;
    return static_cast<std::int64_t>((count / kLengthUnit + kNoFractions) - kNoFractions);
}

/// Room in what is made from parts, or the first document added to a large lexicon would copy whole lists.
constexpr std::size_t room(std::size_t count) {
    return count + count / 32 + 1;
}

bool valid_count(float count) {
    return count > 0.0F && count <= kMostCount;
}

bool passes(std::span<const std::uint8_t> mask, bool has_mask, std::size_t ordinal) {
    return !has_mask || (ordinal < mask.size() && mask[ordinal] != 0);
}

}  // namespace

struct Lexicon::Query {
    struct Term {
        std::span<const Posting> postings;
        double gain;  // weight * idf * (k1 + 1)
    };
    std::vector<Term> terms;
    double base = 0.0;                                       // k1 (1 - b)
    double slope = 0.0;                                      // k1 b / mean length
    double limit = std::numeric_limits<double>::infinity();  // longer documents count as this long

    double add(const Term& term, float count, std::int64_t length) const {
        const auto tf = static_cast<double>(count);
        return term.gain * tf /
               (tf + (base + slope * std::min(static_cast<double>(length) * kLengthUnit, limit)));
    }
};

Lexicon::Lexicon(const LexiconView& parts) {
    const std::size_t documents = parts.alive.size();
    const std::size_t terms = parts.terms.size();
    const std::size_t entries = parts.ordinals.size();
    if (documents > kMostDocuments) throw std::length_error("a lexicon holds at most 2^31 - 1 documents");
    if (parts.offsets.size() != terms + 1 || parts.offsets.front() != 0 ||
        parts.offsets.back() != static_cast<std::int64_t>(entries) || parts.counts.size() != entries) {
        throw std::invalid_argument("offsets do not fit the terms and postings");
    }
    length_.reserve(room(documents));
    alive_.reserve(room(documents));
    total_.reserve(room(documents));
    living_.reserve(room(documents));
    length_.assign(documents, 0);
    alive_.assign(parts.alive.begin(), parts.alive.end());
    postings_.reserve(terms);
    Bytes memory = allocate((room(entries) + terms) * sizeof(Posting));
    auto* const lent = reinterpret_cast<Posting*>(memory.get());
    lent_ = std::move(memory);
    std::size_t at = 0;
    for (std::size_t t = 0; t < terms; ++t) {
        if (t > 0 && parts.terms[t] <= parts.terms[t - 1])
            throw std::invalid_argument("terms are not ascending");
        if (parts.offsets[t] > parts.offsets[t + 1] || parts.offsets[t] < 0) {
            throw std::invalid_argument("offsets are not ascending");
        }
        const auto first = static_cast<std::size_t>(parts.offsets[t]);
        const auto last = static_cast<std::size_t>(parts.offsets[t + 1]);
        if (last > entries) throw std::invalid_argument("offsets do not fit the terms and postings");
        for (std::size_t i = first; i < last; ++i) {
            const std::int64_t ordinal = parts.ordinals[i];
            if (ordinal < 0 || ordinal >= static_cast<std::int64_t>(documents) ||
                (i > first && ordinal <= parts.ordinals[i - 1]) ||
                alive_[static_cast<std::size_t>(ordinal)] == 0 || !valid_count(parts.counts[i])) {
                throw std::invalid_argument("posting " + std::to_string(i) + " is not valid");
            }
            lent[at + (i - first)] = {static_cast<std::uint32_t>(ordinal), parts.counts[i]};
            length_[static_cast<std::size_t>(ordinal)] += length_units(parts.counts[i]);
        }
        postings_[parts.terms[t]].lend(lent + at, last - first, room(last - first));
        at += room(last - first);
    }
    total_.resize(documents);
    living_.resize(documents);
    std::int64_t total = 0;
    std::int64_t living = 0;
    for (std::size_t d = 0; d < documents; ++d) {
        total_[d] = total += length_[d];
        living_[d] = living += alive_[d] != 0 ? 1 : 0;
    }
}

void Lexicon::Postings::lend(Posting* first, std::size_t count, std::size_t capacity) noexcept {
    first_ = first;
    size_ = count;
    capacity_ = capacity;
    own_.reset();
}

void Lexicon::Postings::push_back(const Posting& posting) {
    if (size_ == capacity_) {
        constexpr std::size_t kLeast = 2;
        const std::size_t capacity = std::max(kLeast, 2 * size_);
        auto grown = std::make_unique_for_overwrite<Posting[]>(capacity);
        std::copy(begin(), end(), grown.get());
        own_ = std::move(grown);
        first_ = own_.get();
        capacity_ = capacity;
    }
    first_[size_++] = posting;
}

std::int64_t Lexicon::add(std::span<const std::uint32_t> term_ids, std::span<const float> counts,
                          std::span<const std::int64_t> offsets) {
    if (term_ids.size() != counts.size()) {
        throw std::invalid_argument("got " + std::to_string(term_ids.size()) + " term ids and " +
                                    std::to_string(counts.size()) + " counts");
    }
    if (offsets.empty() || offsets.front() != 0 ||
        offsets.back() != static_cast<std::int64_t>(term_ids.size())) {
        throw std::invalid_argument("offsets must run from 0 to the number of term ids");
    }
    std::vector<std::uint32_t> sorted;
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
        if (offsets[d] > offsets[d + 1]) throw std::invalid_argument("offsets must not descend");
    }
    for (const float count : counts) {
        if (!valid_count(count)) throw std::invalid_argument("counts must be above 0 and at most 1e6");
    }
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
        sorted.assign(term_ids.begin() + offsets[d], term_ids.begin() + offsets[d + 1]);
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        if (twice != sorted.end()) {
            throw std::invalid_argument("term id " + std::to_string(*twice) + " is twice in document " +
                                        std::to_string(d) + " of this call; add its counts up");
        }
    }

    const std::unique_lock lock(mutex_);
    const std::size_t first = length_.size();
    const std::size_t added = offsets.size() - 1;
    if (added > kMostDocuments - first) throw std::length_error("a lexicon holds at most 2^31 - 1 documents");
    try {
        for (std::size_t d = 0; d < added; ++d) {
            const auto ordinal = static_cast<std::uint32_t>(first + d);
            std::int64_t length = 0;
            for (auto i = static_cast<std::size_t>(offsets[d]); i < static_cast<std::size_t>(offsets[d + 1]);
                 ++i) {
                postings_[term_ids[i]].push_back({ordinal, counts[i]});
                length += length_units(counts[i]);
            }
            total_.push_back((total_.empty() ? 0 : total_.back()) + length);
            living_.push_back((living_.empty() ? 0 : living_.back()) + 1);
            alive_.push_back(1);
            length_.push_back(length);
        }
    } catch (...) {
        for (const std::uint32_t term : term_ids) {
            const auto found = postings_.find(term);
            if (found == postings_.end()) continue;
            while (!found->second.empty() && found->second.back().ordinal >= first) found->second.pop_back();
            if (found->second.empty()) postings_.erase(found);
        }
        total_.resize(first);
        living_.resize(first);
        alive_.resize(first);
        length_.resize(first);
        throw;
    }
    return static_cast<std::int64_t>(first);
}

void Lexicon::erase(std::span<const std::int64_t> ordinals) {
    const std::unique_lock lock(mutex_);
    for (const std::int64_t ordinal : ordinals) {
        if (ordinal < 0 || ordinal >= static_cast<std::int64_t>(length_.size())) {
            throw std::out_of_range("no document " + std::to_string(ordinal) + " in a lexicon of " +
                                    std::to_string(length_.size()));
        }
    }
    std::size_t lowest = length_.size();
    for (const std::int64_t ordinal : ordinals) {
        const auto d = static_cast<std::size_t>(ordinal);
        if (alive_[d] == 0) continue;
        alive_[d] = 0;
        length_[d] = 0;
        lowest = std::min(lowest, d);
    }
    if (lowest == length_.size()) return;
    for (auto entry = postings_.begin(); entry != postings_.end();) {
        Postings& list = entry->second;
        const Posting* const kept = std::remove_if(
            list.begin(), list.end(), [this](const Posting& p) { return alive_[p.ordinal] == 0; });
        list.cut(static_cast<std::size_t>(kept - list.begin()));
        entry = entry->second.empty() ? postings_.erase(entry) : std::next(entry);
    }
    for (std::size_t d = lowest; d < length_.size(); ++d) {
        total_[d] = (d > 0 ? total_[d - 1] : 0) + length_[d];
        living_[d] = (d > 0 ? living_[d - 1] : 0) + (alive_[d] != 0 ? 1 : 0);
    }
}

std::size_t Lexicon::visible(const LexiconScope& scope) const {
    return scope.prefix ? std::min(*scope.prefix, length_.size()) : length_.size();
}

std::span<const Lexicon::Posting> Lexicon::postings_before(std::uint32_t term, std::size_t prefix) const {
    const auto found = postings_.find(term);
    if (found == postings_.end()) return {};
    const Postings& all = found->second;
    if (all.empty() || all.back().ordinal < prefix) return {all.begin(), all.end()};
    const auto cut = std::partition_point(all.begin(), all.end(),
                                          [prefix](const Posting& p) { return p.ordinal < prefix; });
    return {all.begin(), cut};
}

LexiconStatistics Lexicon::statistics_of(const LexiconScope& scope, std::size_t prefix) const {
    std::int64_t count = 0;
    std::int64_t total = 0;
    if (!scope.has_stats_mask) {
        if (prefix > 0) {
            count = living_[prefix - 1];
            total = total_[prefix - 1];
        }
    } else {
        const std::size_t end = std::min(prefix, scope.stats_mask.size());
        const std::uint8_t* mask = scope.stats_mask.data();
        const std::uint8_t* alive = alive_.data();
        const std::int64_t* length = length_.data();
        for (std::size_t d = 0; d < end; ++d) {
            const auto keep = static_cast<std::int64_t>((mask[d] != 0) & (alive[d] != 0));
            count += keep;
            total += length[d] & -keep;
        }
    }
    LexiconStatistics out;
    out.doc_count = count;
    if (count > 0) out.mean_length = static_cast<double>(total) * kLengthUnit / static_cast<double>(count);
    return out;
}

Lexicon::Query Lexicon::prepare(std::span<const std::uint32_t> terms, std::span<const float> weights,
                                const LexiconScope& scope, const Bm25& model) const {
    if (!weights.empty() && weights.size() != terms.size()) {
        throw std::invalid_argument("got " + std::to_string(terms.size()) + " terms and " +
                                    std::to_string(weights.size()) + " weights");
    }
    for (const float weight : weights) {
        if (!(std::isfinite(weight) && weight >= 0.0F)) {
            throw std::invalid_argument("weights must be finite and not negative");
        }
    }
    if (!(model.k1 >= 0.0 && model.k1 <= 1e3)) throw std::invalid_argument("k1 must be in [0, 1000]");
    if (!(model.b >= 0.0 && model.b <= 1.0)) throw std::invalid_argument("b must be in [0, 1]");
    if (model.doc_count && !(std::isfinite(*model.doc_count) && *model.doc_count >= 0.0)) {
        throw std::invalid_argument("doc_count must be finite and not negative");
    }
    if (model.longest && !(*model.longest >= 1.0)) throw std::invalid_argument("longest must be at least 1");
    if (model.mean_length && !(std::isfinite(*model.mean_length) && *model.mean_length >= 0.0)) {
        throw std::invalid_argument("mean_length must be finite and not negative");
    }
    const std::size_t prefix = visible(scope);
    LexiconStatistics statistics;
    if (!model.doc_count || !model.mean_length) statistics = statistics_of(scope, prefix);
    const double documents = model.doc_count.value_or(static_cast<double>(statistics.doc_count));
    const double mean = model.mean_length.value_or(statistics.mean_length);

    Query query;
    query.base = model.k1 * (1.0 - model.b);
    query.slope = mean > 0.0 ? model.k1 * model.b / mean : 0.0;
    if (model.longest) query.limit = *model.longest * mean;
    query.terms.reserve(terms.size());
    for (std::size_t t = 0; t < terms.size(); ++t) {
        const double weight = weights.empty() ? 1.0 : static_cast<double>(weights[t]);
        const std::span<const Posting> postings = postings_before(terms[t], prefix);
        if (postings.empty() || weight == 0.0) continue;
        std::size_t counted = postings.size();
        if (scope.has_stats_mask) {
            counted = 0;
            for (const Posting& p : postings) counted += passes(scope.stats_mask, true, p.ordinal) ? 1 : 0;
        }
        const double df = std::min(static_cast<double>(counted), documents);
        const double idf = arith::log(1.0 + (documents - df + 0.5) / (df + 0.5));
        query.terms.push_back({postings, weight * idf * (model.k1 + 1.0)});
    }
    return query;
}

std::vector<double> Lexicon::take_accumulators() const {
    std::vector<double> out;
    {
        const std::lock_guard lock(pool_mutex_);
        if (!pool_.empty()) {
            out = std::move(pool_.back());
            pool_.pop_back();
        }
    }
    out.resize(length_.size(), 0.0);
    return out;
}

void Lexicon::give_back(std::vector<double>&& accumulators) const {
    constexpr std::size_t kMostPooled = 8;
    const std::lock_guard lock(pool_mutex_);
    if (pool_.size() < kMostPooled) pool_.push_back(std::move(accumulators));
}

Ranked Lexicon::search(std::span<const std::uint32_t> terms, std::span<const float> weights, std::size_t k,
                       const LexiconScope& scope, const Bm25& model) const {
    const std::shared_lock lock(mutex_);
    const Query query = prepare(terms, weights, scope, model);
    std::size_t most = 0;
    for (const Query::Term& term : query.terms) most += term.postings.size();
    if (most == 0 || k == 0) return {};
    std::vector<std::uint32_t> touched(std::min(most, length_.size()) + 1);
    std::vector<double> sums = take_accumulators();
    std::size_t found = 0;
    // Without branches on data: a mask that passes half of the documents would cost a misprediction each.
    const auto collect = [&](const Posting& p, double part, bool pass) {
        double& sum = sums[p.ordinal];
        touched[found] = p.ordinal;
        found += static_cast<std::size_t>((sum == 0.0) & pass);
        sum += part * static_cast<double>(pass);
    };
    for (const Query::Term& term : query.terms) {
        for (const Posting& p : term.postings) {
            if (scope.has_mask && p.ordinal >= scope.mask.size()) break;
            collect(p, query.add(term, p.count, length_[p.ordinal]),
                    !scope.has_mask || scope.mask[p.ordinal] != 0);
        }
    }
    std::vector<detail::Scored> items(found);
    for (std::size_t i = 0; i < found; ++i) {
        items[i] = {sums[touched[i]], static_cast<std::int64_t>(touched[i])};
        sums[touched[i]] = 0.0;
    }
    give_back(std::move(sums));
    detail::keep_best(items, k);
    return detail::to_ranked(items);
}

std::vector<double> Lexicon::scores(std::span<const std::uint32_t> terms, std::span<const float> weights,
                                    std::span<const std::int64_t> ordinals, const LexiconScope& scope,
                                    const Bm25& model) const {
    const std::shared_lock lock(mutex_);
    for (const std::int64_t ordinal : ordinals) {
        if (ordinal < 0 || ordinal >= static_cast<std::int64_t>(length_.size())) {
            throw std::out_of_range("no document " + std::to_string(ordinal) + " in a lexicon of " +
                                    std::to_string(length_.size()));
        }
    }
    const Query query = prepare(terms, weights, scope, model);
    std::vector<double> out(ordinals.size(), 0.0);
    std::vector<std::uint32_t> order;
    order.reserve(ordinals.size());
    for (std::size_t i = 0; i < ordinals.size(); ++i) {
        if (passes(scope.mask, scope.has_mask, static_cast<std::size_t>(ordinals[i]))) {
            order.push_back(static_cast<std::uint32_t>(i));
        }
    }
    const auto earlier = [ordinals](std::uint32_t a, std::uint32_t b) { return ordinals[a] < ordinals[b]; };
    if (!std::is_sorted(order.begin(), order.end(), earlier)) std::sort(order.begin(), order.end(), earlier);
    // A list that is not much longer than the documents asked for is read through, with the place of each document at
    // hand; a longer one is galloped over. Terms come in turn either way, so the sums are the same bits.
    constexpr std::size_t kReadThrough = 16;
    std::vector<std::uint32_t> place;
    bool distinct = true;
    for (std::size_t n = 1; n < order.size(); ++n) distinct &= ordinals[order[n - 1]] != ordinals[order[n]];
    if (distinct && !order.empty()) {
        place.assign(static_cast<std::size_t>(ordinals[order.back()]) + 1, 0);
        for (const std::uint32_t i : order) place[static_cast<std::size_t>(ordinals[i])] = i + 1;
    }
    for (const Query::Term& term : query.terms) {
        if (!place.empty() && term.postings.size() / kReadThrough < order.size()) {
            for (const Posting& p : term.postings) {
                if (p.ordinal >= place.size()) break;
                const std::uint32_t found = place[p.ordinal];
                if (found != 0) out[found - 1] += query.add(term, p.count, length_[p.ordinal]);
            }
            continue;
        }
        const Posting* at = term.postings.data();
        const Posting* const end = at + term.postings.size();
        for (const std::uint32_t i : order) {
            const auto wanted = static_cast<std::uint32_t>(ordinals[i]);
            // Galloping: the step doubles until it passes the document, so both dense and sparse lists are
            // cheap.
            const std::ptrdiff_t left = end - at;
            std::ptrdiff_t step = 1;
            while (step < left && at[step].ordinal < wanted) step *= 2;
            at = std::partition_point(at + step / 2, at + std::min(step, left),
                                      [wanted](const Posting& p) { return p.ordinal < wanted; });
            if (at == end) break;
            if (at->ordinal == wanted) out[i] += query.add(term, at->count, length_[wanted]);
        }
    }
    return out;
}

namespace {

std::size_t group_of(std::span<const std::int64_t> groups, std::size_t document, std::size_t count) {
    const auto group = static_cast<std::size_t>(groups[document]);
    if (group >= count) {
        throw std::out_of_range("document " + std::to_string(document) + " is in group " +
                                std::to_string(groups[document]) + " of " + std::to_string(count));
    }
    return group;
}

}  // namespace

std::vector<double> Lexicon::group_lengths(std::span<const std::int64_t> groups, std::size_t count,
                                           const LexiconScope& scope) const {
    const std::shared_lock lock(mutex_);
    std::vector<std::int64_t> units(count, 0);
    const std::size_t end = std::min(visible(scope), groups.size());
    for (std::size_t d = 0; d < end; ++d) {
        if (groups[d] < 0 || !passes(scope.stats_mask, scope.has_stats_mask, d)) continue;
        units[group_of(groups, d, count)] += length_[d];
    }
    std::vector<double> out(count);
    for (std::size_t g = 0; g < count; ++g) out[g] = static_cast<double>(units[g]) * kLengthUnit;
    return out;
}

std::vector<double> Lexicon::group_scores(std::span<const std::uint32_t> terms,
                                          std::span<const std::int64_t> groups,
                                          std::span<const double> lengths, const LexiconScope& scope,
                                          const Bm25& model) const {
    if (!(model.k1 >= 0.0 && model.k1 <= 1e3)) throw std::invalid_argument("k1 must be in [0, 1000]");
    if (!(model.b >= 0.0 && model.b <= 1.0)) throw std::invalid_argument("b must be in [0, 1]");
    if (model.longest && !(*model.longest >= 1.0)) throw std::invalid_argument("longest must be at least 1");
    const std::shared_lock lock(mutex_);
    const std::size_t prefix = std::min(visible(scope), groups.size());
    double living = 0.0;
    double total = 0.0;
    for (const double length : lengths) {
        living += length > 0.0 ? 1.0 : 0.0;
        total += length;
    }
    std::vector<double> out(lengths.size(), 0.0);
    if (living == 0.0) return out;
    const double mean = total / living;
    const double limit = model.longest ? *model.longest * mean : std::numeric_limits<double>::infinity();
    std::vector<double> counts(lengths.size(), 0.0);
    std::vector<double> norms(lengths.size());
    for (std::size_t g = 0; g < lengths.size(); ++g) {
        const double size = std::min(lengths[g], limit) / mean;
        norms[g] = model.k1 * (1.0 - model.b + model.b * size);
    }
    std::vector<std::size_t> touched(lengths.size() + 1);
    for (const std::uint32_t term : terms) {
        std::size_t found = 0;
        for (const Posting& p : postings_before(term, prefix)) {
            if (groups[p.ordinal] < 0 || !passes(scope.stats_mask, scope.has_stats_mask, p.ordinal)) continue;
            const std::size_t group = group_of(groups, p.ordinal, lengths.size());
            double& count = counts[group];
            touched[found] = group;  // without a branch on data
            found += static_cast<std::size_t>(count == 0.0);
            count += static_cast<double>(p.count);
        }
        const double df = std::min(static_cast<double>(found), living);
        const double gain = arith::log(1.0 + (living - df + 0.5) / (df + 0.5)) * (model.k1 + 1.0);
        for (std::size_t n = 0; n < found; ++n) {
            const std::size_t group = touched[n];
            const double tf = std::exchange(counts[group], 0.0);
            out[group] += gain * tf / (tf + norms[group]);
        }
    }
    return out;
}

std::vector<std::int64_t> Lexicon::document_frequency(std::span<const std::uint32_t> terms,
                                                      const LexiconScope& scope) const {
    const std::shared_lock lock(mutex_);
    const std::size_t prefix = visible(scope);
    std::vector<std::int64_t> out;
    out.reserve(terms.size());
    for (const std::uint32_t term : terms) {
        std::int64_t counted = 0;
        for (const Posting& p : postings_before(term, prefix)) {
            counted += passes(scope.stats_mask, scope.has_stats_mask, p.ordinal) ? 1 : 0;
        }
        out.push_back(counted);
    }
    return out;
}

LexiconStatistics Lexicon::statistics(const LexiconScope& scope) const {
    const std::shared_lock lock(mutex_);
    return statistics_of(scope, visible(scope));
}

std::size_t Lexicon::size() const {
    const std::shared_lock lock(mutex_);
    return length_.size();
}

std::size_t Lexicon::term_count() const {
    const std::shared_lock lock(mutex_);
    return postings_.size();
}

LexiconParts Lexicon::parts() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::pair<std::uint32_t, const Postings*>> sorted;
    sorted.reserve(postings_.size());
    std::size_t entries = 0;
    for (const auto& [term, list] : postings_) {
        sorted.emplace_back(term, &list);
        entries += list.size();
    }
    std::sort(sorted.begin(), sorted.end());
    LexiconParts out;
    out.terms.reserve(sorted.size());
    out.offsets.reserve(sorted.size() + 1);
    out.ordinals.resize(entries);
    out.counts.resize(entries);
    out.offsets.push_back(0);
    std::size_t at = 0;
    for (const auto& [term, list] : sorted) {
        out.terms.push_back(term);
        for (const Posting& p : *list) {
            out.ordinals[at] = p.ordinal;
            out.counts[at] = p.count;
            ++at;
        }
        out.offsets.push_back(static_cast<std::int64_t>(at));
    }
    out.alive = alive_;
    return out;
}

}  // namespace twofold
