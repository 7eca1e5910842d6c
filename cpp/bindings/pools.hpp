// Pools as numpy arrays, checked once when they come in.
#pragma once

#include "arrays.hpp"
#include "twofold/turns.hpp"

inline twofold::PoolView pool_of(const Array<std::int64_t>& ordinals, const Array<std::int64_t>& chosen,
                                 const Array<std::int64_t>& previous, const Array<std::int64_t>& next) {
    const twofold::PoolView pool(span_of(ordinals, "ordinals"), span_of(chosen, "chosen"),
                                 span_of(previous, "previous"), span_of(next, "next"));
    if (pool.previous.size() != pool.ordinals.size() || pool.next.size() != pool.ordinals.size()) {
        throw py::value_error("a pool's columns differ in length");
    }
    const auto places = static_cast<std::int64_t>(pool.ordinals.size());
    bool inside = true;
    for (const std::int64_t place : pool.chosen) inside &= place >= 0 && place < places;
    for (const std::int64_t place : pool.previous) inside &= place >= -1 && place < places;
    for (const std::int64_t place : pool.next) inside &= place >= -1 && place < places;
    if (!inside) throw py::index_error("a place lies outside the pool");
    bool ascending = pool.ordinals.empty() || pool.ordinals[0] >= 0;
    for (std::size_t i = 1; i < pool.ordinals.size(); ++i)
        ascending &= pool.ordinals[i] > pool.ordinals[i - 1];
    if (!ascending) throw py::value_error("a pool's ordinals must ascend from 0");
    return pool;
}
