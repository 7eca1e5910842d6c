// Between numpy arrays and the core's spans and vectors.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "bind.hpp"
#include "twofold/ranked.hpp"

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using Mask = std::optional<Array<bool>>;

/// One-dimensional arrays only: a flattened matrix is a caller's mistake.
template <class T>
std::span<const T> span_of(const Array<T>& array, const char* name) {
    if (array.ndim() != 1) throw py::value_error(std::string(name) + " must have one dimension");
    return {array.data(), static_cast<std::size_t>(array.size())};
}

inline std::span<const std::uint8_t> bytes_of(const Mask& mask, const char* name) {
    if (!mask) return {};
    if (mask->ndim() != 1) throw py::value_error(std::string(name) + " must have one dimension");
    // numpy stores bool as one byte, 0 or 1.
    return {static_cast<const std::uint8_t*>(static_cast<const void*>(mask->data())),
            static_cast<std::size_t>(mask->size())};
}

template <class T>
py::array_t<T> array_of(const std::vector<T>& values) {
    py::array_t<T> out(static_cast<py::ssize_t>(values.size()));
    if (!values.empty()) std::memcpy(out.mutable_data(), values.data(), values.size() * sizeof(T));
    return out;
}

inline py::array_t<bool> mask_of(const std::vector<std::uint8_t>& values) {
    py::array_t<bool> out(static_cast<py::ssize_t>(values.size()));
    if (!values.empty()) std::memcpy(out.mutable_data(), values.data(), values.size());
    return out;
}

inline py::tuple pair_of(const twofold::Ranked& ranked) {
    return py::make_tuple(array_of(ranked.ordinals), array_of(ranked.scores));
}

/// A list entry of the exact dtype and layout, or TypeError: no silent copy.
template <class T>
Array<T> exact(const py::handle& object, const char* name) {
    if (!py::isinstance<Array<T>>(object)) {
        throw py::type_error(std::string(name) + " must be C-contiguous numpy arrays of dtype " +
                             py::str(py::dtype::of<T>()).cast<std::string>());
    }
    return py::reinterpret_borrow<Array<T>>(object);
}

/// A list of arrays of one dtype, held while their spans are looked into.
template <class T>
struct Arrays {
    Arrays() = default;
    Arrays(const py::sequence& given, const char* name) {
        for (const py::handle array : given) add(array, name);
    }
    void add(const py::handle& array, const char* name) {
        held.push_back(exact<T>(array, name));
        spans.push_back(span_of(held.back(), name));
    }
    std::vector<Array<T>> held;
    std::vector<std::span<const T>> spans;
};
