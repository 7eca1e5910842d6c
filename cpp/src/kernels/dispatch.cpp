// Chooses the level once per process. The processor flag alone is not enough: the system must save the wide
// registers.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernel.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace twofold::kernels {
namespace {

#if defined(__x86_64__)

std::uint64_t saved_registers() {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (std::uint64_t{high} << 32) | low;
}

struct Cpu {
    bool avx2 = false;
    bool avx512 = false;
    bool vpopcnt = false;
};

Cpu detect() {
    constexpr std::uint32_t kOsxsave = 1U << 27;
    constexpr std::uint64_t kYmm = 0x6;   // SSE and AVX state
    constexpr std::uint64_t kZmm = 0xe6;  // and opmask, upper ZMM halves, upper ZMM registers
    constexpr std::uint32_t kAvx2 = 1U << 5;
    constexpr std::uint32_t kAvx512 = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;  // F, DQ, BW, VL
    constexpr std::uint32_t kVnni = 1U << 11;
    constexpr std::uint32_t kVpopcnt = 1U << 14;

    Cpu cpu;
    std::uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return cpu;
    const std::uint64_t saved = saved_registers();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return cpu;
    cpu.avx2 = (saved & kYmm) == kYmm && (b & kAvx2) != 0;
    cpu.avx512 = cpu.avx2 && (saved & kZmm) == kZmm && (b & kAvx512) == kAvx512 && (c & kVnni) != 0;
    cpu.vpopcnt = cpu.avx512 && (c & kVpopcnt) != 0;
    return cpu;
}

#endif

struct Levels {
    const Kernel* list[5] = {};

    Levels() {
        std::size_t n = 0;
#if defined(__x86_64__)
        const Cpu cpu = detect();
        if (cpu.vpopcnt) list[n++] = &avx512p;
        if (cpu.avx512) list[n++] = &avx512;
        if (cpu.avx2) list[n++] = &avx2;
#elif defined(__aarch64__)
        list[n++] = &neon;
#endif
        list[n] = &generic;
    }
};

const Kernel& choose() {
    const char* wanted = std::getenv("TWOFOLD_KERNEL");
    if (wanted == nullptr || *wanted == '\0') return *supported()[0];
    const Kernel* kernel = find(wanted);
    if (kernel == nullptr) {
        throw std::invalid_argument(std::string("TWOFOLD_KERNEL=") + wanted +
                                    ": no such kernel level on this machine; unset it or use generic");
    }
    return *kernel;
}

}  // namespace

const Kernel* const* supported() {
    static const Levels levels;
    return levels.list;
}

const Kernel* find(const char* name) {
    for (const Kernel* const* level = supported(); *level != nullptr; ++level) {
        if (std::strcmp((*level)->name, name) == 0) return *level;
    }
    return nullptr;
}

const Kernel& active() {
    static const Kernel& kernel = choose();
    return kernel;
}

}  // namespace twofold::kernels
