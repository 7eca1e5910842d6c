#include "twofold/topk.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace twofold {

void keep_best(std::vector<Hit>& hits, std::size_t k) {
    if (k < hits.size()) {
        const auto end = hits.begin() + static_cast<std::ptrdiff_t>(k);
        std::nth_element(hits.begin(), end, hits.end(), before);
        hits.erase(end, hits.end());
    }
    std::sort(hits.begin(), hits.end(), before);
}

float kth_largest(std::span<float> values, std::size_t k) {
    if (k == 0 || k > values.size()) return -std::numeric_limits<float>::infinity();
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(values.begin(), nth, values.end(), std::greater<>());
    return *nth;
}

}  // namespace twofold
