#include "bind.hpp"

PYBIND11_MODULE(_core, m) {
    m.doc() = "Compiled core of Twofold: whole-array functions over rows, term ids and scores.";
    m.attr("__version__") = TWOFOLD_VERSION;
    bind_scratchpad(m);
    bind_vectors(m);
    bind_lexicon(m);
    bind_graph(m);
    bind_fuse(m);
    bind_decay(m);
    bind_pack(m);
    bind_turns(m);
    bind_blend(m);
    bind_bits(m);
    bind_names(m);
}
