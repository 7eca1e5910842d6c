// Shared declarations of the binding files: one bind_* function per core header.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

namespace py = pybind11;

void bind_scratchpad(py::module_& m);
void bind_vectors(py::module_& m);
void bind_lexicon(py::module_& m);
void bind_graph(py::module_& m);
void bind_fuse(py::module_& m);
void bind_decay(py::module_& m);
void bind_pack(py::module_& m);
void bind_turns(py::module_& m);
void bind_blend(py::module_& m);
void bind_bits(py::module_& m);
void bind_names(py::module_& m);
