// Two things Python cannot do itself: read memory at full speed, and talk to valgrind.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAS_VALGRIND 1
#endif
#endif

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t read_once(const void *start, size_t bytes) {
  // Thirty-two words at a time: enough independent registers that only the memory is waited for.
  const uint64_t *words = (const uint64_t *)start;
  uint64_t lanes[32] = {0};
  const size_t count = bytes / sizeof(uint64_t);
  for (size_t i = 0; i + 32 <= count; i += 32) {
    for (size_t j = 0; j < 32; ++j) {
      lanes[j] ^= words[i + j];
    }
  }
  uint64_t folded = 0;
  for (size_t j = 0; j < 32; ++j) {
    folded ^= lanes[j];
  }
  return folded;
}

int has_valgrind(void) {
#ifdef HAS_VALGRIND
  return (int)RUNNING_ON_VALGRIND;
#else
  return -1;
#endif
}

void begin(void) {
#ifdef HAS_VALGRIND
  CALLGRIND_START_INSTRUMENTATION;
#endif
}

void zero(void) {
#ifdef HAS_VALGRIND
  CALLGRIND_ZERO_STATS;
#endif
}

void dump(const char *name) {
#ifdef HAS_VALGRIND
  CALLGRIND_DUMP_STATS_AT(name);
#else
  (void)name;
#endif
}

void end(void) {
#ifdef HAS_VALGRIND
  CALLGRIND_STOP_INSTRUMENTATION;
#endif
}
