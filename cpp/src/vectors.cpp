#include "twofold/vectors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "kernels/kernel.hpp"
#include "pages.hpp"
#include "twofold/names.hpp"

namespace twofold {
namespace {

using kernels::kBlockRows;
using kernels::kLine;
using kernels::kTogether;

static_assert(std::endian::native == std::endian::little,
              "code blocks and mask packing assume little endian");

constexpr std::size_t kFirstSegmentRows = 256;
constexpr std::size_t kChunkBlocks = 64;
/// A chunk whose blocks offer at most this many rows of 16 on average is scored from the float rows; above,
/// reading every code in one stream is faster (measured crossover 15-25 %, lowest where the codes do not fit
/// the cache).
constexpr std::size_t kGatherRows = 3;
/// Several queries share a chunk of codes while it stays in the second-level cache.
constexpr std::size_t kSharedChunkBytes = 256 * 1024;

const kernels::Kernel& kernel_called(std::string_view name) {
    if (name.empty()) return kernels::active();
    const kernels::Kernel* kernel = kernels::find(std::string(name).c_str());
    if (kernel == nullptr) {
        throw std::invalid_argument("kernel level " + std::string(name) + " cannot run on this machine");
    }
    return *kernel;
}

struct Quantised {
    float scale;
    double residual;  // Euclidean norm of row - scale * codes
};

struct Extent {
    double square;  // sum of squares; not finite exactly where an element is not
    float largest;  // largest absolute value
};

constexpr std::size_t kSumLanes = 8;

double total(const std::array<double, kSumLanes>& lanes) {
    double sum = 0.0;
    for (const double lane : lanes) sum += lane;
    return sum;
}

Extent measure(const float* row, std::size_t dim) {
    std::array<double, kSumLanes> squares{};
    std::array<float, kSumLanes> largest{};
    std::size_t i = 0;
    for (; i + kSumLanes <= dim; i += kSumLanes) {
        for (std::size_t j = 0; j < kSumLanes; ++j) {
            const float value = row[i + j];
            squares[j] += double{value} * double{value};
            largest[j] = std::max(largest[j], std::fabs(value));
        }
    }
    for (std::size_t j = 0; i < dim; ++i, ++j) {
        squares[j] += double{row[i]} * double{row[i]};
        largest[j] = std::max(largest[j], std::fabs(row[i]));
    }
    return {total(squares), *std::max_element(largest.begin(), largest.end())};
}

/// `largest` is the largest absolute value of the row, finite.
Quantised quantise(const float* row, std::size_t dim, float largest, std::int8_t* codes) {
    // Adding and taking away 1.5 * 2^52 rounds a small double to the nearest integer, ties to even.
    constexpr double kRounder = 6755399441055744.0;
    if (largest == 0.0F) {
        std::memset(codes, 0, dim);
        return {0.0F, 0.0};
    }
    const float scale = largest / 127.0F;
    const double inverse = 127.0 / double{largest};
    std::array<double, kSumLanes> squares{};
    const auto one = [&](std::size_t i, std::size_t lane) {
        const double code = (double{row[i]} * inverse + kRounder) - kRounder;
        const double rest = double{row[i]} - double{scale} * code;
        squares[lane] += rest * rest;
        codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(code));
    };
    std::size_t i = 0;
    for (; i + kSumLanes <= dim; i += kSumLanes) {
        for (std::size_t j = 0; j < kSumLanes; ++j) one(i + j, j);
    }
    for (std::size_t j = 0; i < dim; ++i, ++j) one(i, j);
    return {scale, std::sqrt(total(squares))};
}

/// As a float that is not below `value`, with room for the rounding of one float product.
float rounded_up(double value) {
    return static_cast<float>(value * (1.0 + 4e-7));
}

void check_unit(const Extent& extent, const std::string& what) {
    if (!std::isfinite(extent.square)) throw std::invalid_argument(what + " holds NaN or infinity");
    const double norm = std::sqrt(extent.square);
    if (std::fabs(norm - 1.0) > VectorIndex::kUnitTolerance) {
        throw std::invalid_argument(what + " has norm " + std::to_string(norm) + "; normalise it to 1");
    }
}

struct Lanes {
    std::size_t present;   // lanes set
    std::size_t occupied;  // blocks with any
};

/// Without branches and without a population count, which needs an instruction that not every level has: the
/// compiler does several blocks at a time.
Lanes count_lanes(std::span<const std::uint16_t> valid) {
    unsigned present = 0;
    unsigned occupied = 0;
    for (const std::uint16_t lanes : valid) {
        auto sums = static_cast<std::uint16_t>(lanes - ((lanes >> 1) & 0x5555));
        sums = static_cast<std::uint16_t>((sums & 0x3333) + ((sums >> 2) & 0x3333));
        sums = static_cast<std::uint16_t>((sums + (sums >> 4)) & 0x0f0f);
        present += static_cast<unsigned>((sums + (sums >> 8)) & 0x1f);
        occupied += static_cast<unsigned>(lanes != 0);
    }
    return {present, occupied};
}

void read_fully(int descriptor, std::uint64_t at, std::span<std::uint8_t> out) {
    while (!out.empty()) {
        const ssize_t got = pread(descriptor, out.data(), out.size(), static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw Damaged("its end is missing, or it cannot be read");
        out = out.subspan(static_cast<std::size_t>(got));
        at += static_cast<std::uint64_t>(got);
    }
}

/// A row that may belong to the answer. Its score lies in [lower, upper]; equal bounds are the score itself.
struct Candidate {
    float upper;
    float lower;
    std::uint32_t row;
};

}  // namespace

/// Rows [start, start + capacity). Segments double, so growing never moves a row.
struct VectorIndex::Segment {
    std::size_t start;
    std::size_t capacity;
    Bytes rows;
    Bytes blocks;
    std::unique_ptr<std::uint16_t[]> alive;  // one bit per row of a block
};

/// The float rows [0, rows) in a file. In RAM lie those that are `present`.
struct VectorIndex::Backing {
    Backing(int file, bool resident_, std::size_t rows_, std::uint64_t at_,
            std::span<const std::uint64_t> sums_)
        : descriptor(dup(file)),
          resident(resident_),
          rows(rows_),
          at(at_),
          sums(sums_.begin(), sums_.end()),
          present(std::make_unique<std::atomic<std::uint8_t>[]>(rows_)) {
        if (descriptor < 0) throw Damaged("its descriptor cannot be copied");
    }
    ~Backing() { close(descriptor); }
    Backing(const Backing&) = delete;
    Backing& operator=(const Backing&) = delete;

    /// Reads one row of `bytes` and checks it.
    void read(std::size_t row, std::size_t bytes, std::uint8_t* out) const {
        read_fully(descriptor, at + row * bytes, {out, bytes});
        if (checksum({out, bytes}) != sums[row]) throw Damaged("row " + std::to_string(row) + " is damaged");
    }

    const int descriptor;
    const bool resident;  // rows read stay in RAM
    const std::size_t rows;
    const std::uint64_t at;
    const std::vector<std::uint64_t> sums;
    const std::unique_ptr<std::atomic<std::uint8_t>[]> present;
    std::atomic<std::size_t> loaded{0};
    std::mutex filling;
};

struct VectorIndex::Query {
    std::vector<float> values;  // zero padded to the width of a stored row
    std::vector<std::int8_t> codes;
    std::vector<std::int8_t> magnitudes;
    kernels::ScanQuery plan;
    std::size_t k;
    std::size_t capacity;  // candidates to collect before the window is tightened
    float floor = -std::numeric_limits<float>::infinity();
    std::vector<Candidate> window;
    std::vector<float> scratch;
    std::vector<Hit> hits;

    void offer(const Candidate& candidate) {
        window.push_back(candidate);
        if (window.size() >= capacity) tighten();
    }

    /// At least k rows score `floor` or more, so a row whose upper bound is below it is out. Ties stay in.
    void tighten() {
        if (window.size() <= k) return;
        scratch.clear();
        for (const Candidate& candidate : window) scratch.push_back(candidate.lower);
        floor = std::max(floor, kth_largest(scratch, k));
        std::erase_if(window, [this](const Candidate& candidate) { return candidate.upper < floor; });
        capacity = std::max(capacity, 2 * window.size());
    }
};

std::string_view kernel_name() {
    return kernels::active().name;
}

std::vector<std::string_view> kernel_names() {
    std::vector<std::string_view> names;
    for (const kernels::Kernel* const* level = kernels::supported(); *level != nullptr; ++level) {
        names.emplace_back((*level)->name);
    }
    return names;
}

VectorIndex::VectorIndex(std::size_t dim, std::string_view kernel, bool keep_rows)
    : dim_(dim),
      width_(round_up(dim, kernels::kLanes / 2)),
      groups_(round_up(dim, 4) / 4),
      kernel_(&kernel_called(kernel)),
      keep_rows_(keep_rows) {
    if (dim < 1 || dim > kMaxDim) {
        throw std::invalid_argument("dim " + std::to_string(dim) + " is not in 1.." +
                                    std::to_string(kMaxDim));
    }
}

VectorIndex::~VectorIndex() = default;

std::string_view VectorIndex::kernel() const noexcept {
    return kernel_->name;
}

std::size_t VectorIndex::size() const {
    const std::shared_lock lock(mutex_);
    return size_;
}

std::size_t VectorIndex::nbytes() const {
    const std::size_t rows = size();
    const std::size_t blocks = round_up(rows, kBlockRows) / kBlockRows;
    return (keep_rows_ ? (rows - rows_in_file()) * width_ * sizeof(float) : 0) +
           blocks * ((groups_ + 2) * kLine + sizeof(std::uint16_t));
}

const VectorIndex::Segment& VectorIndex::segment_of(std::size_t row) const {
    return segments_[static_cast<std::size_t>(std::bit_width(row / kFirstSegmentRows))];
}

float* VectorIndex::place_of(std::size_t row) const {
    const Segment& segment = segment_of(row);
    return reinterpret_cast<float*>(segment.rows.get()) + (row - segment.start) * width_;
}

bool VectorIndex::is_alive(std::size_t row) const {
    const Segment& segment = segment_of(row);
    const std::size_t local = row - segment.start;
    return (segment.alive[local / kBlockRows] >> (local % kBlockRows) & 1U) != 0;
}

bool VectorIndex::all_present() const {
    return backing_ == nullptr || (backing_->resident && backing_->loaded == backing_->rows);
}

const float* VectorIndex::row_at(std::size_t row, Scratch& scratch) const {
    if (backing_ == nullptr || row >= backing_->rows) return place_of(row);
    Backing& file = *backing_;
    if (file.present[row].load(std::memory_order_acquire) != 0) return place_of(row);
    const std::size_t bytes = dim_ * sizeof(float);
    if (!file.resident) {
        scratch.rows.push_back(std::make_unique<float[]>(width_));
        float* out = scratch.rows.back().get();
        if (is_alive(row)) file.read(row, bytes, reinterpret_cast<std::uint8_t*>(out));
        return out;
    }
    const std::lock_guard lock(file.filling);
    float* out = place_of(row);
    if (file.present[row].load(std::memory_order_relaxed) != 0) return out;
    std::memset(out, 0, width_ * sizeof(float));
    if (is_alive(row)) file.read(row, bytes, reinterpret_cast<std::uint8_t*>(out));
    file.present[row].store(1, std::memory_order_release);
    ++file.loaded;
    return out;
}

void VectorIndex::restore(const Stored& stored) {
    const std::unique_lock lock(mutex_);
    const std::size_t unit = kFirstSegmentRows / kBlockRows * (groups_ + 2) * kLine;
    const std::size_t units = round_up(stored.rows, kFirstSegmentRows) / kFirstSegmentRows;
    if (size_ != 0 || !keep_rows_) throw std::invalid_argument("only an empty index with rows is restored");
    if (stored.rows > std::numeric_limits<std::uint32_t>::max() || stored.alive.size() != stored.rows ||
        stored.row_sums.size() != stored.rows || stored.code_sums.size() != units) {
        throw std::invalid_argument("flags or checksums do not fit the rows");
    }
    if (!stored.at_once) {
        backing_ = std::make_unique<Backing>(stored.file, stored.resident, stored.rows, stored.rows_at,
                                             stored.row_sums);
    }
    reserve(stored.rows);
    for (std::size_t u = 0; u < units; ++u) {
        const std::size_t first = u * kFirstSegmentRows;
        const Segment& segment = segment_of(first);
        const std::size_t local = (first - segment.start) / kBlockRows;
        const std::size_t blocks =
            round_up(std::min(kFirstSegmentRows, stored.rows - first), kBlockRows) / kBlockRows;
        const std::span<std::uint8_t> codes(segment.blocks.get() + local * (groups_ + 2) * kLine,
                                            blocks * (groups_ + 2) * kLine);
        read_fully(stored.file, stored.codes_at + u * unit, codes);
        if (checksum(codes) != stored.code_sums[u]) {
            throw Damaged("the codes of rows from " + std::to_string(first) + " are damaged");
        }
        for (std::size_t i = 0; i < std::min(kFirstSegmentRows, stored.rows - first); ++i) {
            const auto lane = static_cast<std::uint16_t>(unsigned{stored.alive[first + i]} << (i % kBlockRows));
            segment.alive[local + i / kBlockRows] |= lane;
        }
        if (stored.at_once) read_rows(stored, first, std::min(kFirstSegmentRows, stored.rows - first));
    }
    size_ = stored.rows;
}

void VectorIndex::read_rows(const Stored& stored, std::size_t first, std::size_t count) {
    const std::size_t bytes = dim_ * sizeof(float);
    std::vector<std::uint8_t> buffer(count * bytes);
    read_fully(stored.file, stored.rows_at + first * bytes, buffer);
    for (std::size_t i = 0; i < count; ++i) {
        const std::span<const std::uint8_t> source(buffer.data() + i * bytes, bytes);
        if (checksum(source) != stored.row_sums[first + i]) {
            throw Damaged("row " + std::to_string(first + i) + " is damaged");
        }
        float* out = place_of(first + i);
        std::memcpy(out, source.data(), bytes);
        std::fill(out + dim_, out + width_, 0.0F);
    }
}

void VectorIndex::refill(std::span<const float> rows) {
    const std::unique_lock lock(mutex_);
    if (backing_ == nullptr) return;
    if (rows.size() != backing_->rows * dim_) {
        throw std::invalid_argument("expected the " + std::to_string(backing_->rows) + " rows that are in the file");
    }
    for (std::size_t row = 0; row < backing_->rows; ++row) {
        float* out = place_of(row);
        std::memset(out, 0, width_ * sizeof(float));
        if (is_alive(row)) std::memcpy(out, rows.data() + row * dim_, dim_ * sizeof(float));
    }
    backing_.reset();
}

std::size_t VectorIndex::code_bytes(std::size_t rows) const noexcept {
    return round_up(rows, kBlockRows) / kBlockRows * (groups_ + 2) * kLine;
}

void VectorIndex::copy_codes(std::size_t first, std::span<std::uint8_t> out) const {
    const std::shared_lock lock(mutex_);
    const std::size_t count = first < size_ ? std::min(kFirstSegmentRows, size_ - first) : 0;
    if (first % kFirstSegmentRows != 0 || out.size() != code_bytes(count)) {
        throw std::invalid_argument("output does not fit the codes of rows from " + std::to_string(first));
    }
    if (count == 0) return;
    const Segment& segment = segment_of(first);
    std::memcpy(out.data(),
                segment.blocks.get() + (first - segment.start) / kBlockRows * (groups_ + 2) * kLine, out.size());
}

std::size_t VectorIndex::rows_in_file() const {
    const std::shared_lock lock(mutex_);
    return backing_ == nullptr ? 0 : backing_->rows - backing_->loaded;
}

void VectorIndex::reserve(std::size_t rows) {
    while (segments_.empty() || segments_.back().start + segments_.back().capacity < rows) {
        const std::size_t start = segments_.empty() ? 0 : segments_.back().start + segments_.back().capacity;
        const std::size_t capacity = std::max(start, kFirstSegmentRows);
        const std::size_t blocks = capacity / kBlockRows;
        segments_.push_back(
            {start, capacity,
             keep_rows_ ? allocate(capacity * width_ * sizeof(float), backing_ == nullptr) : nullptr,
             allocate(blocks * (groups_ + 2) * kLine), std::make_unique<std::uint16_t[]>(blocks)});
    }
}

std::size_t VectorIndex::add(std::span<const float> rows) {
    if (rows.size() % dim_ != 0) {
        throw std::invalid_argument(std::to_string(rows.size()) + " values are not whole rows of " +
                                    std::to_string(dim_));
    }
    const std::size_t count = rows.size() / dim_;
    const std::unique_lock lock(mutex_);
    if (count > std::numeric_limits<std::uint32_t>::max() - size_) {
        throw std::length_error("more than 2^32 - 1 rows");
    }
    if (count == 0) return size_;
    reserve(size_ + count);

    std::vector<std::int8_t> codes(groups_ * 4, 0);
    for (std::size_t i = 0; i < count; ++i) {
        const float* source = rows.data() + i * dim_;
        const Extent extent = measure(source, dim_);
        check_unit(extent, "row " + std::to_string(i));
        const Quantised quantised = quantise(source, dim_, extent.largest, codes.data());

        // Rows past size_ are invisible, so a later bad row undoes all this by being thrown.
        const std::size_t row = size_ + i;
        const Segment& segment = segment_of(row);
        const std::size_t local = row - segment.start;
        if (keep_rows_) {
            float* target = reinterpret_cast<float*>(segment.rows.get()) + local * width_;
            std::memcpy(target, source, dim_ * sizeof(float));
            std::fill(target + dim_, target + width_, 0.0F);
        }

        std::uint8_t* block = segment.blocks.get() + local / kBlockRows * (groups_ + 2) * kLine;
        const std::size_t lane = local % kBlockRows;
        if (lane == 0) std::memset(block, 0, (groups_ + 2) * kLine);
        for (std::size_t g = 0; g < groups_; ++g) std::memcpy(block + g * kLine + 4 * lane, &codes[4 * g], 4);
        const float residual = rounded_up(quantised.residual);
        std::memcpy(block + groups_ * kLine + 4 * lane, &quantised.scale, sizeof(float));
        std::memcpy(block + (groups_ + 1) * kLine + 4 * lane, &residual, sizeof(float));
    }
    for (std::size_t row = size_; row < size_ + count; ++row) {
        const Segment& segment = segment_of(row);
        const std::size_t local = row - segment.start;
        segment.alive[local / kBlockRows] |= static_cast<std::uint16_t>(1U << (local % kBlockRows));
    }
    size_ += count;
    return size_ - count;
}

VectorIndex::Query VectorIndex::prepare(std::span<const float> query, std::size_t k) const {
    const Extent extent = measure(query.data(), dim_);
    check_unit(extent, "query");

    Query state;
    state.k = k;
    state.capacity = 2 * k + 256;
    state.values.assign(width_, 0.0F);
    std::copy(query.begin(), query.end(), state.values.begin());
    state.codes.assign(groups_ * 4, 0);
    const Quantised quantised = quantise(query.data(), dim_, extent.largest, state.codes.data());
    std::int32_t code_sum = 0;
    state.magnitudes.reserve(state.codes.size());
    for (const std::int8_t code : state.codes) {
        code_sum += code;
        state.magnitudes.push_back(static_cast<std::int8_t>(std::abs(code)));
    }

    // With row x = s c + r and query q = t d + e (codes c, d): |x.q - s t (c.d)| <= |r||q| + |s c||e|, and
    // |s c| <= |x| + |r|, so the bound is |r| (|q| + |e|) + |x||e|: linear in the row's residual.
    //
    // The rest is float rounding, u = 2^-24. The fixed-lane score of two vectors of norm <= 1.001 differs
    // from x.q by at most m u / (1 - m u) * 1.0021, m = additions per lane + 1 product + 5 folds. The
    // estimate rounds four times at a size below 1.6, and the bounds three times more below 2.4: 11 u
    // together; 32 leaves room.
    const double norm = std::sqrt(extent.square);
    const double largest_norm = 1.0 + kUnitTolerance + 1e-4;
    const double rounding =
        (static_cast<double>(round_up(width_, kernels::kLanes) / kernels::kLanes) + 32.0) * 0x1.0p-24 * 1.01;
    state.plan = {state.codes.data(),
                  state.magnitudes.data(),
                  code_sum,
                  groups_,
                  quantised.scale,
                  rounded_up(norm + quantised.residual),
                  rounded_up(largest_norm * quantised.residual + rounding)};
    return state;
}

void VectorIndex::scan(std::span<Query> queries, std::size_t limit, const RowFilter& filter,
                       std::size_t& passing) const {
    const std::size_t stride = (groups_ + 2) * kLine;
    const std::size_t largest_chunk =
        queries.size() == 1 ? kChunkBlocks
                            : std::clamp(kSharedChunkBytes / stride, std::size_t{1}, kChunkBlocks);
    // The first chunks are short: they only find the floor.
    std::size_t chunk = std::min(largest_chunk, std::size_t{8});

    std::array<std::uint16_t, kChunkBlocks> valid;
    std::array<std::array<std::uint16_t, kChunkBlocks>, kTogether> hits;
    std::array<std::array<float, kChunkBlocks * kBlockRows>, kTogether> upper;
    std::array<const float*, kChunkBlocks * kGatherRows> gathered;
    std::array<std::uint32_t, kChunkBlocks * kGatherRows> gathered_rows;
    std::array<float, kChunkBlocks * kGatherRows> gathered_scores;
    const bool gather = keep_rows_ && all_present();

    for (std::size_t row = 0; row < limit;) {
        const Segment& segment = segment_of(row);
        const std::size_t first = (row - segment.start) / kBlockRows;
        const std::size_t end = std::min(limit, segment.start + segment.capacity);
        const std::size_t count = std::min(chunk, (end - row + kBlockRows - 1) / kBlockRows);

        std::copy_n(&segment.alive[first], count, valid.begin());
        const std::size_t last = row + (count - 1) * kBlockRows;
        if (limit - last < kBlockRows) {
            valid[count - 1] &= static_cast<std::uint16_t>((1U << (limit - last)) - 1);
        }
        if (filter.mask) {
            const std::size_t whole = std::min(count, (filter.mask->size() - row) / kBlockRows);
            kernel_->select(&(*filter.mask)[row], whole, valid.data());
            if (whole < count) {
                std::array<std::uint8_t, kBlockRows> tail{};
                std::copy(filter.mask->begin() + static_cast<std::ptrdiff_t>(last), filter.mask->end(),
                          tail.begin());
                kernel_->select(tail.data(), 1, &valid[whole]);
            }
        }
        const auto [present, occupied] = count_lanes(std::span(valid).first(count));
        passing += present;
        std::size_t sparse = 0;
        const bool dense = !gather || present > kGatherRows * occupied;
        for (std::size_t b = 0; !dense && b < count; ++b) {
            for (unsigned left = valid[b]; left != 0; left &= left - 1) {
                const std::size_t found =
                    row + b * kBlockRows + static_cast<std::size_t>(std::countr_zero(left));
                gathered[sparse] = place_of(found);
                gathered_rows[sparse++] = static_cast<std::uint32_t>(found);
            }
        }
        for (Query& query : queries) {
            kernel_->score(query.values.data(), gathered.data(), sparse, width_, gathered_scores.data());
            for (std::size_t i = 0; i < sparse; ++i) {
                const float score = gathered_scores[i];
                if (score >= query.floor) query.offer({score, score, gathered_rows[i]});
            }
        }
        const std::uint8_t* blocks = segment.blocks.get() + first * stride;
        const auto collect = [&](Query& query, std::size_t slot) {
            for (std::size_t b = 0; b < count; ++b) {
                if (hits[slot][b] == 0) continue;
                const auto* residuals =
                    reinterpret_cast<const float*>(blocks + b * stride + (groups_ + 1) * kLine);
                for (unsigned left = hits[slot][b]; left != 0; left &= left - 1) {
                    const auto lane = static_cast<std::size_t>(std::countr_zero(left));
                    const float high = upper[slot][b * kBlockRows + lane];
                    const float spread = residuals[lane] * query.plan.slope + query.plan.offset;
                    query.offer({high, high - 2.0F * spread,
                                 static_cast<std::uint32_t>(row + b * kBlockRows + lane)});
                }
            }
        };
        std::size_t q = dense ? 0 : queries.size();
        for (; kernel_->scan_together != nullptr && q + kTogether <= queries.size(); q += kTogether) {
            std::array<const kernels::ScanQuery*, kTogether> plans;
            std::array<float, kTogether> floors;
            std::array<float*, kTogether> uppers;
            std::array<std::uint16_t*, kTogether> reached;
            for (std::size_t i = 0; i < kTogether; ++i) {
                plans[i] = &queries[q + i].plan;
                floors[i] = queries[q + i].floor;
                uppers[i] = upper[i].data();
                reached[i] = hits[i].data();
            }
            kernel_->scan_together(plans.data(), blocks, count, valid.data(), floors.data(), uppers.data(),
                                   reached.data());
            for (std::size_t i = 0; i < kTogether; ++i) collect(queries[q + i], i);
        }
        for (; q < queries.size(); ++q) {
            Query& query = queries[q];
            kernel_->scan(query.plan, blocks, count, valid.data(), query.floor, upper[0].data(),
                          hits[0].data());
            collect(query, 0);
        }
        for (Query& query : queries) {
            if (std::isinf(query.floor)) query.tighten();
        }
        row += count * kBlockRows;
        chunk = std::min(largest_chunk, 2 * chunk);
    }
}

/// Replaces the window by the exact best k. Re-scoring the k highest bounds first gives a floor close to the
/// final one.
void VectorIndex::settle(Query& query) const {
    query.tighten();
    std::vector<Candidate>& window = query.window;
    std::vector<const float*> pointers;
    std::vector<float> scores;
    Scratch scratch;
    const auto rescore = [&](std::size_t begin, std::size_t end) {
        pointers.clear();
        for (std::size_t i = begin; i < end; ++i) pointers.push_back(row_at(window[i].row, scratch));
        scores.resize(pointers.size());
        kernel_->score(query.values.data(), pointers.data(), pointers.size(), width_, scores.data());
        for (std::size_t i = begin; i < end; ++i) query.hits.push_back({scores[i - begin], window[i].row});
    };
    const std::size_t k = std::min(query.k, window.size());
    if (k == 0) return;
    const auto middle = window.begin() + static_cast<std::ptrdiff_t>(k);
    if (middle != window.end()) {
        std::nth_element(window.begin(), middle, window.end(),
                         [](const Candidate& a, const Candidate& b) { return a.upper > b.upper; });
    }
    rescore(0, k);
    const Hit worst = *std::min_element(query.hits.begin(), query.hits.end(),
                                        [](const Hit& a, const Hit& b) { return a.score < b.score; });
    query.floor = std::max(query.floor, worst.score);
    window.erase(std::remove_if(middle, window.end(),
                                [&](const Candidate& candidate) { return candidate.upper < query.floor; }),
                 window.end());
    rescore(k, window.size());
    keep_best(query.hits, k);
}

void VectorIndex::check_kept() const {
    if (!keep_rows_) throw std::invalid_argument("this index keeps codes only; ask for candidates");
}

std::size_t VectorIndex::check_filter(const RowFilter& filter) const {
    const std::size_t limit = filter.prefix.value_or(size_);
    if (limit > size_) {
        throw std::invalid_argument("prefix " + std::to_string(limit) + " is beyond the " +
                                    std::to_string(size_) + " rows");
    }
    if (filter.mask && (filter.mask->size() < limit || filter.mask->size() > size_)) {
        throw std::invalid_argument("mask of " + std::to_string(filter.mask->size()) + " rows does not fit " +
                                    std::to_string(limit) + " rows");
    }
    return limit;
}

std::vector<std::uint32_t> VectorIndex::candidates(std::span<const float> query, std::size_t k,
                                                   const RowFilter& filter) const {
    if (query.size() != dim_) {
        throw std::invalid_argument("query of " + std::to_string(query.size()) + " values, not " +
                                    std::to_string(dim_));
    }
    const std::shared_lock lock(mutex_);
    const std::size_t limit = check_filter(filter);
    Query state = prepare(query, std::min(k, limit));
    std::vector<std::uint32_t> ordinals;
    if (k == 0) return ordinals;
    std::size_t passing = 0;
    scan({&state, 1}, limit, filter, passing);
    state.tighten();
    for (const Candidate& candidate : state.window) ordinals.push_back(candidate.row);
    std::sort(ordinals.begin(), ordinals.end());
    return ordinals;
}

std::vector<Hit> VectorIndex::search(std::span<const float> queries, std::size_t k,
                                     const RowFilter& filter) const {
    if (queries.size() % dim_ != 0) {
        throw std::invalid_argument(std::to_string(queries.size()) + " values are not whole queries of " +
                                    std::to_string(dim_));
    }
    check_kept();
    const std::shared_lock lock(mutex_);
    const std::size_t limit = check_filter(filter);
    std::vector<Query> states;
    for (std::size_t i = 0; i < queries.size(); i += dim_) {
        states.push_back(prepare(queries.subspan(i, dim_), std::min(k, limit)));
    }
    std::vector<Hit> hits;
    if (k == 0 || states.empty()) return hits;
    std::size_t passing = 0;
    scan(states, limit, filter, passing);
    hits.reserve(states.size() * std::min(k, passing));
    for (Query& state : states) {
        settle(state);
        hits.insert(hits.end(), state.hits.begin(), state.hits.end());
    }
    return hits;
}

void VectorIndex::check_ordinals(std::span<const std::int64_t> ordinals) const {
    for (const std::int64_t ordinal : ordinals) {
        if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= size_) {
            throw std::out_of_range("row " + std::to_string(ordinal) + " is not among the " +
                                    std::to_string(size_) + " rows");
        }
    }
}

void VectorIndex::scores(std::span<const float> query, std::span<const std::int64_t> ordinals,
                         std::span<float> out) const {
    if (query.size() != dim_ || out.size() != ordinals.size()) {
        throw std::invalid_argument("query or output does not fit " + std::to_string(dim_) + " dimensions");
    }
    check_kept();
    check_unit(measure(query.data(), dim_), "query");
    std::vector<float> padded(width_, 0.0F);
    std::copy(query.begin(), query.end(), padded.begin());

    const std::shared_lock lock(mutex_);
    check_ordinals(ordinals);
    std::vector<const float*> pointers;
    pointers.reserve(ordinals.size());
    Scratch scratch;
    for (const std::int64_t ordinal : ordinals)
        pointers.push_back(row_at(static_cast<std::size_t>(ordinal), scratch));
    kernel_->score(padded.data(), pointers.data(), pointers.size(), width_, out.data());
}

void VectorIndex::rows(std::span<const std::int64_t> ordinals, std::span<float> out) const {
    if (out.size() != ordinals.size() * dim_) throw std::invalid_argument("output does not fit the rows");
    check_kept();
    const std::shared_lock lock(mutex_);
    check_ordinals(ordinals);
    for (std::size_t i = 0; i < ordinals.size(); ++i) {
        const auto row = static_cast<std::size_t>(ordinals[i]);
        float* target = out.data() + i * dim_;
        // Copies do not fill the RAM: they are asked for by what goes through all rows once.
        if (backing_ != nullptr && row < backing_->rows && backing_->present[row] == 0) {
            std::fill(target, target + dim_, 0.0F);
            if (is_alive(row))
                backing_->read(row, dim_ * sizeof(float), reinterpret_cast<std::uint8_t*>(target));
        } else {
            std::copy_n(place_of(row), dim_, target);
        }
    }
}

void VectorIndex::erase(std::span<const std::int64_t> ordinals) {
    const std::unique_lock lock(mutex_);
    check_ordinals(ordinals);
    for (const std::int64_t ordinal : ordinals) {
        const auto row = static_cast<std::size_t>(ordinal);
        const Segment& segment = segment_of(row);
        const std::size_t local = row - segment.start;
        if (keep_rows_) {
            std::memset(segment.rows.get() + local * width_ * sizeof(float), 0, width_ * sizeof(float));
            if (backing_ != nullptr && row < backing_->rows && backing_->present[row].exchange(1) == 0) {
                ++backing_->loaded;
            }
        }
        std::uint8_t* block = segment.blocks.get() + local / kBlockRows * (groups_ + 2) * kLine;
        for (std::size_t g = 0; g < groups_ + 2; ++g)
            std::memset(block + g * kLine + local % kBlockRows * 4, 0, 4);
        segment.alive[local / kBlockRows] &= static_cast<std::uint16_t>(~(1U << (local % kBlockRows)));
    }
}

void VectorIndex::alive(std::span<std::uint8_t> out) const {
    const std::shared_lock lock(mutex_);
    if (out.size() > size_) throw std::invalid_argument("more flags than rows");
    for (std::size_t row = 0; row < out.size(); ++row) {
        const Segment& segment = segment_of(row);
        const std::size_t local = row - segment.start;
        out[row] = static_cast<std::uint8_t>(segment.alive[local / kBlockRows] >> (local % kBlockRows) & 1U);
    }
}

void score_rows(std::span<const float> query, std::span<const float> rows, std::span<float> out,
                std::string_view kernel) {
    const std::size_t dim = query.size();
    if (dim < 1 || dim > VectorIndex::kMaxDim || rows.size() != out.size() * dim) {
        throw std::invalid_argument("rows do not fit the query of " + std::to_string(dim) + " values");
    }
    check_unit(measure(query.data(), dim), "query");
    const kernels::Kernel& level = kernel_called(kernel);
    const std::size_t width = round_up(dim, kernels::kLanes / 2);
    std::vector<float> padded(2 * width, 0.0F);
    std::copy(query.begin(), query.end(), padded.begin());
    float* copy = padded.data() + width;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const float* row = rows.data() + i * dim;
        if (dim != width) row = static_cast<const float*>(std::memcpy(copy, row, dim * sizeof(float)));
        level.score(padded.data(), &row, 1, width, &out[i]);
    }
}

void quantize_rows(std::span<const float> rows, std::span<std::int8_t> codes, std::span<float> scales) {
    if (codes.size() != rows.size() || (scales.empty() ? !rows.empty() : rows.size() % scales.size() != 0)) {
        throw std::invalid_argument("codes or scales do not fit the rows");
    }
    const std::size_t dim = scales.empty() ? 0 : rows.size() / scales.size();
    for (std::size_t i = 0; i < scales.size(); ++i) {
        const Extent extent = measure(rows.data() + i * dim, dim);
        if (!std::isfinite(extent.square)) {
            throw std::invalid_argument("row " + std::to_string(i) + " holds NaN or infinity");
        }
        scales[i] = quantise(rows.data() + i * dim, dim, extent.largest, codes.data() + i * dim).scale;
    }
}

void maxsim(const Tokens& query, const Tokens& documents, std::span<const std::int64_t> offsets,
            std::span<double> out, std::string_view kernel) {
    const std::size_t count = query.scales.size();
    const std::size_t tokens = documents.scales.size();
    if (offsets.empty() || out.size() != offsets.size() - 1) {
        throw std::invalid_argument("offsets must hold one entry more than there are documents");
    }
    const std::size_t dim = count > 0    ? query.codes.size() / count
                            : tokens > 0 ? documents.codes.size() / tokens
                                         : 0;
    if (query.codes.size() != count * dim || documents.codes.size() != tokens * dim ||
        dim > VectorIndex::kMaxDim) {
        throw std::invalid_argument("query and document tokens must share one dimension of at most " +
                                    std::to_string(VectorIndex::kMaxDim));
    }
    if (std::find(query.codes.begin(), query.codes.end(), std::int8_t{-128}) != query.codes.end()) {
        throw std::invalid_argument("query code -128 is not in [-127, 127]");
    }
    const auto usable = [](float scale) { return scale >= 0.0F && std::isfinite(scale); };
    if (!std::all_of(query.scales.begin(), query.scales.end(), usable) ||
        !std::all_of(documents.scales.begin(), documents.scales.end(), usable)) {
        throw std::invalid_argument("scales must be finite and not negative");
    }
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        if (offsets[i] < (i == 0 ? 0 : offsets[i - 1]) || static_cast<std::size_t>(offsets[i]) > tokens) {
            throw std::invalid_argument("offset " + std::to_string(i) + " decreases or leaves the " +
                                        std::to_string(tokens) + " tokens");
        }
    }

    const kernels::Kernel& level = kernel_called(kernel);
    std::vector<std::int32_t> query_sums(count);
    for (std::size_t q = 0; q < count; ++q) {
        for (std::size_t i = 0; i < dim; ++i) query_sums[q] += query.codes[q * dim + i];
    }
    // Aligned, because a load that straddles cache lines costs two.
    const Bytes queries = allocate(count * dim + 1);
    std::copy(query.codes.begin(), query.codes.end(), queries.get());
    constexpr std::size_t kTokens = 32;
    std::vector<std::int32_t> dots(kTokens * count);
    std::vector<double> best(count);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto end = static_cast<std::size_t>(offsets[i + 1]);
        double sum = 0.0;
        if (offsets[i] != offsets[i + 1]) {
            std::fill(best.begin(), best.end(), -std::numeric_limits<double>::infinity());
            for (auto t = static_cast<std::size_t>(offsets[i]); t < end; t += kTokens) {
                const std::size_t some = std::min(kTokens, end - t);
                level.dots(reinterpret_cast<const std::int8_t*>(queries.get()), query_sums.data(), count,
                           documents.codes.data() + t * dim, some, dim, dots.data());
                for (std::size_t j = 0; j < some; ++j) {
                    const double scale = documents.scales[t + j];
                    for (std::size_t q = 0; q < count; ++q)
                        best[q] = std::max(best[q], dots[j * count + q] * scale);
                }
            }
            for (std::size_t q = 0; q < count; ++q) sum += best[q] * double{query.scales[q]};
        }
        out[i] = sum;
    }
}

}  // namespace twofold
