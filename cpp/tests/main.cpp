#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "twofold/vectors.hpp"

int main(int argc, char** argv) {
    constexpr int kSkipped = 77;  // what CTest takes for "skipped"
    const char* wanted = std::getenv("TWOFOLD_KERNEL");
    const auto levels = twofold::kernel_names();
    if (wanted != nullptr &&
        std::find(levels.begin(), levels.end(), std::string_view(wanted)) == levels.end()) {
        std::printf("skipped: this machine cannot run kernel level %s\n", wanted);
        return kSkipped;
    }
    return doctest::Context(argc, argv).run();
}
