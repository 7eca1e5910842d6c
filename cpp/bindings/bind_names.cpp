#include <memory>
#include <string_view>

#include "arrays.hpp"
#include "twofold/names.hpp"

namespace {

using Bytes = Array<std::uint8_t>;

/// The bytes of a Python string, lone surrogates included; `kept` holds what the view needs.
std::string_view utf8_of(const py::str& text, py::object& kept) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (data == nullptr) {
        PyErr_Clear();
        kept = py::reinterpret_steal<py::object>(
            PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
        if (!kept) throw py::error_already_set();
        char* bytes = nullptr;
        if (PyBytes_AsStringAndSize(kept.ptr(), &bytes, &size) != 0) throw py::error_already_set();
        data = bytes;
    }
    return {data, static_cast<std::size_t>(size)};
}

py::object text_of(std::string_view bytes) {
    auto text = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogatepass"));
    if (!text) throw py::error_already_set();
    return text;
}

/// A view together with the arrays it looks into.
struct Held {
    Held(Bytes blob, Array<std::int64_t> offsets, Array<std::uint32_t> slots)
        : blob_(std::move(blob)),
          offsets_(std::move(offsets)),
          slots_(std::move(slots)),
          strings(span_of(blob_, "blob"), span_of(offsets_, "offsets"), span_of(slots_, "slots")) {}

  private:
    Bytes blob_;
    Array<std::int64_t> offsets_;
    Array<std::uint32_t> slots_;

  public:
    twofold::Strings strings;
};

}  // namespace

void bind_names(py::module_& m) {
    m.def(
        "checksum",
        [](const py::buffer& buffer) {
            Py_buffer view;
            if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0)
                throw py::error_already_set();
            const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> release(&view, &PyBuffer_Release);
            const std::span<const std::uint8_t> bytes(static_cast<const std::uint8_t*>(view.buf),
                                                      static_cast<std::size_t>(view.len));
            if (bytes.size() < 65536) return twofold::checksum(bytes);
            const py::gil_scoped_release unlocked;
            return twofold::checksum(bytes);
        },
        py::arg("data"),
        "64-bit checksum of a C-contiguous buffer, the same on every machine. Finds damage, not malice.");
    m.def(
        "checksum_rows",
        [](const Bytes& rows) {
            if (rows.ndim() != 2) throw py::value_error("rows must have two axes");
            py::array_t<std::uint64_t> out(rows.shape(0));
            const auto width = static_cast<std::size_t>(rows.shape(1));
            const std::uint8_t* source = rows.data();
            std::uint64_t* target = out.mutable_data();
            const auto count = static_cast<std::size_t>(rows.shape(0));
            const py::gil_scoped_release unlocked;
            for (std::size_t i = 0; i < count; ++i)
                target[i] = twofold::checksum({source + i * width, width});
            return out;
        },
        py::arg("rows").noconvert(), "The checksum of each row of uint8 (n, width): uint64 (n,).");
    py::class_<Held>(m, "Strings", py::module_local(),
                     "Immutable strings over arrays as a file holds them; nothing is decoded before it is asked for.")
        .def(py::init<Bytes, Array<std::int64_t>, Array<std::uint32_t>>(), py::arg("blob").noconvert(),
             py::arg("offsets").noconvert(), py::arg("slots").noconvert(),
             "UTF-8 blob uint8, int64 offsets (n + 1,), uint32 slots as slots_of gives them or empty. ValueError "
             "where they contradict each other. The arrays must not change afterwards.")
        .def_static(
            "slots_of",
            [](const Bytes& blob, const Array<std::int64_t>& offsets) {
                return array_of(twofold::Strings::slots_of(span_of(blob, "blob"), span_of(offsets, "offsets")));
            },
            py::arg("blob").noconvert(), py::arg("offsets").noconvert(), "The hash table of these strings, uint32.")
        .def(
            "find",
            [](const Held& self, const py::str& text) {
                py::object kept;
                const auto found = self.strings.find(utf8_of(text, kept));
                return found ? static_cast<std::int64_t>(*found) : std::int64_t{-1};
            },
            py::arg("text"), "The number of a string, -1 when it is not among them.")
        .def(
            "find_all",
            [](const Held& self, const py::list& texts) {
                py::list out(texts.size());
                for (std::size_t i = 0; i < texts.size(); ++i) {
                    py::object kept;
                    const auto found = self.strings.find(utf8_of(py::str(texts[i]), kept));
                    out[i] = found ? static_cast<std::int64_t>(*found) : std::int64_t{-1};
                }
                return out;
            },
            py::arg("texts"), "The number of each string, -1 for one that is not among them.")
        .def(
            "__getitem__",
            [](const Held& self, std::int64_t i) {
                if (i < 0) i += static_cast<std::int64_t>(self.strings.size());
                if (i < 0) throw py::index_error("no such string");
                return text_of(self.strings.at(static_cast<std::size_t>(i)));
            },
            py::arg("i"))
        .def(
            "tolist",
            [](const Held& self) {
                py::list out(self.strings.size());
                for (std::size_t i = 0; i < self.strings.size(); ++i) {
                    PyList_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i),
                                    text_of(self.strings.at(i)).release().ptr());
                }
                return out;
            },
            "All of them, decoded.")
        .def("__len__", [](const Held& self) { return self.strings.size(); });
}
