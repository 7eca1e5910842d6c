// Memory in whole cache lines, on huge pages where it is large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace twofold {

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
    return (value + step - 1) / step * step;
}

struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
};
using Bytes = std::unique_ptr<std::uint8_t, Free>;

/// `filled`: all of it will be used. Rows that are read from a file one by one would fill a huge page each.
inline Bytes allocate(std::size_t bytes, bool filled = true) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    constexpr std::size_t kCacheLine = 64;
    const bool huge = filled && bytes >= kHugePage / 2;
    const std::size_t alignment = huge ? kHugePage : kCacheLine;
    const std::size_t whole = round_up(bytes, alignment);
    Bytes memory(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, whole)));
    if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    // A refusal only costs speed.
    if (huge) static_cast<void>(madvise(memory.get(), whole, MADV_HUGEPAGE));
#endif
    return memory;
}

}  // namespace twofold
