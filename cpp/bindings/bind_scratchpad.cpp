// Scratchpad as a raw CPython type: pybind11's argument casting alone costs more than a lookup.
// No Python object is released and no Python code runs inside a Guard, so the pad is consistent whenever
// a finalizer, a clock or the garbage collector calls back into it.
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "twofold/scratchpad.hpp"

namespace {

using twofold::Scratchpad;

struct PadObject {
    PyObject_HEAD Scratchpad* pad;
    PyObject* clock;    // nullptr: the steady clock
    PyObject* names;    // set of keys that belong to the context, or nullptr
    PyObject* context;  // dict of their values: outside of the LRU order and the time to live
};

// With the GIL held there is nothing to lock, and nothing that a fork could leave locked.
#ifdef Py_GIL_DISABLED
class Guard {
  public:
    explicit Guard(PadObject* self) { PyCriticalSection_Begin(&section_, reinterpret_cast<PyObject*>(self)); }
    ~Guard() { PyCriticalSection_End(&section_); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

  private:
    PyCriticalSection section_;
};
#else
struct Guard {
    explicit Guard(PadObject*) {}
    ~Guard() {}
};
#endif

PyObject* object(Scratchpad::Handle handle) {
    return reinterpret_cast<PyObject*>(handle);
}
Scratchpad::Handle handle(PyObject* object) {
    return reinterpret_cast<Scratchpad::Handle>(object);
}
PadObject* as_pad(PyObject* self) {
    return reinterpret_cast<PadObject*>(self);
}

void release(const Scratchpad::Entry& entry) {
    Py_DECREF(object(entry.key));
    Py_DECREF(object(entry.value));
}

void release(const std::optional<Scratchpad::Entry>& entry) {
    if (entry) release(*entry);
}

void release_all(Scratchpad* pad) {
    if (pad == nullptr) return;
    pad->each([](const Scratchpad::Entry& entry) {
        release(entry);
        return 0;
    });
    delete pad;
}

/// Runs a call that may throw; a C++ exception must not cross into the interpreter.
template <class Call>
bool guarded(const Call& call) {
    try {
        call();
        return true;
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    }
    return false;
}

/// A str key with its hash; owns a plain copy when the key is of a subclass with its own ideas of equality.
class Key {
  public:
    explicit Key(PyObject* given) {
        if (PyUnicode_CheckExact(given)) {
            str_ = given;
            Py_INCREF(str_);
        } else if (PyUnicode_Check(given)) {
            str_ = PyUnicode_FromObject(given);
        } else {
            PyErr_Format(PyExc_TypeError, "scratchpad keys are str, not %.200s", Py_TYPE(given)->tp_name);
        }
        if (str_ == nullptr) return;
#if PY_VERSION_HEX < 0x030C0000
        if (PyUnicode_READY(str_) < 0) {
            Py_CLEAR(str_);
            return;
        }
#endif
        hash_ = static_cast<std::uint64_t>(PyObject_Hash(str_));
    }
    ~Key() {
        Py_XDECREF(str_);
    }
    Key(const Key&) = delete;
    Key& operator=(const Key&) = delete;

    explicit operator bool() const {
        return str_ != nullptr;
    }
    PyObject* str() const {
        return str_;
    }
    std::uint64_t hash() const {
        return hash_;
    }
    bool operator()(Scratchpad::Handle stored) const {
        PyObject* other = object(stored);
        if (other == str_) return true;
        const Py_ssize_t length = PyUnicode_GET_LENGTH(str_);
        const auto kind = PyUnicode_KIND(str_);
        return length == PyUnicode_GET_LENGTH(other) && kind == PyUnicode_KIND(other) &&
               std::memcmp(PyUnicode_DATA(str_), PyUnicode_DATA(other),
                           static_cast<std::size_t>(length) * static_cast<std::size_t>(kind)) == 0;
    }

  private:
    PyObject* str_ = nullptr;
    std::uint64_t hash_ = 0;
};

bool read_clock(PadObject* self, double& now) {
    if (self->pad == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "Scratchpad.__init__ was not called");
        return false;
    }
    if (self->clock == nullptr) {
        now =
            self->pad->ttl() == Scratchpad::kNoExpiry
                ? 0.0
                : std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
        return true;
    }
    PyObject* clock = self->clock;
    Py_INCREF(clock);
    PyObject* read = PyObject_CallNoArgs(clock);
    Py_DECREF(clock);
    if (read == nullptr) return false;
    now = PyFloat_AsDouble(read);
    Py_DECREF(read);
    if (now == -1.0 && PyErr_Occurred()) return false;
    if (!(now - now == 0.0)) {
        PyErr_SetString(PyExc_ValueError, "the clock of a scratchpad must give a finite number of seconds");
        return false;
    }
    if (self->pad == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "the scratchpad was torn down by its clock");
        return false;
    }
    return true;
}

/// Arguments (first, second) of a vectorcall, the second optional when `required` is 1.
bool two_arguments(const char* function, const char* second_name, Py_ssize_t required, PyObject* const* args,
                   Py_ssize_t given, PyObject* names, PyObject*& first, PyObject*& second) {
    if (given > 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most 2 arguments, got %zd", function, given);
        return false;
    }
    first = given > 0 ? args[0] : nullptr;
    second = given > 1 ? args[1] : nullptr;
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject* name = PyTuple_GET_ITEM(names, i);
        PyObject** target = PyUnicode_CompareWithASCIIString(name, "key") == 0         ? &first
                            : PyUnicode_CompareWithASCIIString(name, second_name) == 0 ? &second
                                                                                       : nullptr;
        if (target == nullptr || *target != nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() got an unknown or repeated argument '%U'", function, name);
            return false;
        }
        *target = args[given + i];
    }
    if (first == nullptr || (required == 2 && second == nullptr)) {
        PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%s'", function,
                     first == nullptr ? "key" : second_name);
        return false;
    }
    return true;
}

int pad_init(PyObject* object_self, PyObject* args, PyObject* kwargs) {
    static const char* names[] = {"max_size", "ttl", "clock", nullptr};
    Py_ssize_t max_size = 50;
    PyObject* ttl_given = nullptr;
    PyObject* clock = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|nOO:Scratchpad", const_cast<char**>(names), &max_size,
                                     &ttl_given, &clock)) {
        return -1;
    }
    double ttl = 300.0;
    if (ttl_given == Py_None) {
        ttl = Scratchpad::kNoExpiry;
    } else if (ttl_given != nullptr) {
        ttl = PyFloat_AsDouble(ttl_given);
        if (ttl == -1.0 && PyErr_Occurred()) return -1;
    }
    if (clock == Py_None) clock = nullptr;
    if (clock != nullptr && !PyCallable_Check(clock)) {
        PyErr_SetString(PyExc_TypeError, "clock must be callable without arguments, or None");
        return -1;
    }
    std::unique_ptr<Scratchpad> fresh;
    const bool made = guarded([&] {
        if (max_size < 1) throw std::invalid_argument("max_size must be at least 1");
        fresh = std::make_unique<Scratchpad>(static_cast<std::size_t>(max_size), ttl);
    });
    if (!made) return -1;
    PadObject* self = as_pad(object_self);
    Py_XINCREF(clock);
    Scratchpad* old_pad = nullptr;
    PyObject* old_clock = nullptr;
    {
        const Guard guard(self);
        old_pad = std::exchange(self->pad, fresh.release());
        old_clock = std::exchange(self->clock, clock);
    }
    release_all(old_pad);
    Py_XDECREF(old_clock);
    return 0;
}

int pad_traverse(PyObject* object_self, visitproc visit, void* arg) {
    PadObject* self = as_pad(object_self);
    Py_VISIT(Py_TYPE(object_self));
    Py_VISIT(self->clock);
    Py_VISIT(self->names);
    Py_VISIT(self->context);
    if (self->pad == nullptr) return 0;
    return self->pad->each(
        [visit, arg](const Scratchpad::Entry& entry) { return visit(object(entry.value), arg); });
}

int pad_clear_references(PyObject* object_self) {
    PadObject* self = as_pad(object_self);
    release_all(std::exchange(self->pad, nullptr));
    Py_CLEAR(self->clock);
    Py_CLEAR(self->names);
    Py_CLEAR(self->context);
    return 0;
}

void pad_dealloc(PyObject* object_self) {
    PyTypeObject* type = Py_TYPE(object_self);
    PyObject_GC_UnTrack(object_self);
    pad_clear_references(object_self);
    type->tp_free(object_self);
    Py_DECREF(type);
}

/// A new reference to the context's value of a key, or nullptr without an exception when it has none.
PyObject* context_get(const PadObject* self, PyObject* key) {
    if (self->context == nullptr) return nullptr;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* value = nullptr;
    PyDict_GetItemRef(self->context, key, &value);
    return value;
#else
    PyObject* value = PyDict_GetItemWithError(self->context, key);
    Py_XINCREF(value);
    return value;
#endif
}

PyObject* pad_get(PyObject* object_self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    PyObject* given_key = nullptr;
    PyObject* fallback = nullptr;
    if (!two_arguments("get", "default", 1, args, given, names, given_key, fallback)) return nullptr;
    const Key key(given_key);
    PadObject* self = as_pad(object_self);
    double now = 0.0;
    if (!key || !read_clock(self, now)) return nullptr;
    std::optional<Scratchpad::Entry> removed;
    PyObject* value = nullptr;
    {
        const Guard guard(self);
        const Scratchpad::Handle* found = self->pad->get(key.hash(), key, now, removed);
        if (found != nullptr) {
            value = object(*found);
            Py_INCREF(value);
        }
    }
    release(removed);
    if (value == nullptr) value = context_get(self, key.str());
    if (value == nullptr) {
        value = fallback != nullptr ? fallback : Py_None;
        Py_INCREF(value);
    }
    return value;
}

PyObject* pad_set(PyObject* object_self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
    PyObject* given_key = nullptr;
    PyObject* value = nullptr;
    if (!two_arguments("set", "value", 2, args, given, names, given_key, value)) return nullptr;
    const Key key(given_key);
    PadObject* self = as_pad(object_self);
    double now = 0.0;
    if (!key || !read_clock(self, now)) return nullptr;
    if (self->names != nullptr && PySet_Contains(self->names, key.str()) == 1) {
        if (PyDict_SetItem(self->context, key.str(), value) < 0) return nullptr;
        Py_RETURN_NONE;
    }
    std::optional<Scratchpad::Entry> removed;
    Py_INCREF(key.str());
    Py_INCREF(value);
    const Scratchpad::Entry entry{handle(key.str()), handle(value)};
    const bool stored = guarded([&] {
        const Guard guard(self);
        self->pad->set(key.hash(), key, entry, now, removed);
    });
    if (!stored) removed = entry;
    release(removed);
    if (!stored) return nullptr;
    Py_RETURN_NONE;
}

PyObject* pad_delete(PyObject* object_self, PyObject* given_key) {
    const Key key(given_key);
    PadObject* self = as_pad(object_self);
    double now = 0.0;
    if (!key || !read_clock(self, now)) return nullptr;
    std::optional<Scratchpad::Entry> removed;
    bool live = false;
    {
        const Guard guard(self);
        live = self->pad->erase(key.hash(), key, now, removed);
    }
    release(removed);
    if (self->context != nullptr && PyDict_Contains(self->context, key.str()) == 1) {
        if (PyDict_DelItem(self->context, key.str()) == 0) {
            live = true;
        } else {
            PyErr_Clear();  // another thread was faster
        }
    }
    return PyBool_FromLong(live ? 1 : 0);
}

int pad_contains(PyObject* object_self, PyObject* given_key) {
    const Key key(given_key);
    PadObject* self = as_pad(object_self);
    double now = 0.0;
    if (!key || !read_clock(self, now)) return -1;
    {
        const Guard guard(self);
        if (self->pad->contains(key.hash(), key, now)) return 1;
    }
    return self->context == nullptr ? 0 : PyDict_Contains(self->context, key.str());
}

/// Releases what is expired, one entry at a time because a finalizer may use the pad meanwhile; then runs
/// `after` under the guard that saw no expired entry left.
template <class After>
bool purged(PadObject* self, const After& after) {
    double now = 0.0;
    if (!read_clock(self, now)) return false;
    for (;;) {
        Scratchpad::Entry removed{};
        {
            const Guard guard(self);
            if (self->pad == nullptr || !self->pad->pop_expired(now, removed)) {
                return guarded([&] {
                    if (self->pad == nullptr) throw std::invalid_argument("the scratchpad was torn down");
                    after();
                });
            }
        }
        release(removed);
    }
}

Py_ssize_t pad_length(PyObject* object_self) {
    PadObject* self = as_pad(object_self);
    Py_ssize_t length = -1;
    if (!purged(self, [&] { length = static_cast<Py_ssize_t>(self->pad->size()); })) return -1;
    return length + (self->context == nullptr ? 0 : PyDict_Size(self->context));
}

/// Live entries, least recent first, as new references. Making the list may run the collector, so it comes
/// later.
bool snapshot(PadObject* self, std::vector<Scratchpad::Entry>& entries) {
    return purged(self, [&] {
        entries.reserve(self->pad->size());
        self->pad->each([&entries](const Scratchpad::Entry& entry) {
            entries.push_back(entry);
            Py_INCREF(object(entry.key));
            Py_INCREF(object(entry.value));
            return 0;
        });
    });
}

template <class Make>
PyObject* list_of_entries(PyObject* object_self, const Make& make) {
    std::vector<Scratchpad::Entry> entries;
    if (!snapshot(as_pad(object_self), entries)) return nullptr;
    if (PyObject* context = as_pad(object_self)->context) {
        PyObject* copy = PyDict_Copy(context);
        PyObject* key = nullptr;
        PyObject* value = nullptr;
        Py_ssize_t at = 0;
        const bool added = copy != nullptr && guarded([&] {
                               entries.reserve(entries.size() + static_cast<std::size_t>(PyDict_Size(copy)));
                               while (PyDict_Next(copy, &at, &key, &value) != 0) {
                                   Py_INCREF(key);
                                   Py_INCREF(value);
                                   entries.push_back({handle(key), handle(value)});
                               }
                           });
        Py_XDECREF(copy);
        if (!added) {
            for (const Scratchpad::Entry& entry : entries) release(entry);
            return nullptr;
        }
    }
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(entries.size()));
    for (std::size_t i = 0; list != nullptr && i < entries.size(); ++i) {
        PyObject* item = make(object(entries[i].key), object(entries[i].value));
        if (item == nullptr) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), item);
        }
    }
    for (const Scratchpad::Entry& entry : entries) release(entry);
    return list;
}

PyObject* new_reference(PyObject* value) {
    Py_INCREF(value);
    return value;
}

PyObject* pad_items(PyObject* self, PyObject*) {
    return list_of_entries(self, [](PyObject* key, PyObject* value) { return PyTuple_Pack(2, key, value); });
}

PyObject* pad_keys(PyObject* self, PyObject*) {
    return list_of_entries(self, [](PyObject* key, PyObject*) { return new_reference(key); });
}

PyObject* pad_values(PyObject* self, PyObject*) {
    return list_of_entries(self, [](PyObject*, PyObject* value) { return new_reference(value); });
}

PyObject* pad_iter(PyObject* self) {
    PyObject* keys = pad_keys(self, nullptr);
    if (keys == nullptr) return nullptr;
    PyObject* iterator = PyObject_GetIter(keys);
    Py_DECREF(keys);
    return iterator;
}

PyObject* pad_clear(PyObject* object_self, PyObject*) {
    PadObject* self = as_pad(object_self);
    double now = 0.0;
    if (!read_clock(self, now)) return nullptr;
    std::unique_ptr<Scratchpad> fresh;
    if (!guarded([&] { fresh = std::make_unique<Scratchpad>(self->pad->max_size(), self->pad->ttl()); })) {
        return nullptr;
    }
    Scratchpad* old = nullptr;
    {
        const Guard guard(self);
        old = std::exchange(self->pad, fresh.release());
    }
    release_all(old);
    Py_RETURN_NONE;
}

PyObject* pad_bind_context(PyObject* object_self, PyObject* args) {
    PyObject* names = nullptr;
    PyObject* context = nullptr;
    if (!PyArg_ParseTuple(args, "O!O!:bind_context", &PySet_Type, &names, &PyDict_Type, &context))
        return nullptr;
    PadObject* self = as_pad(object_self);
    if (self->names != nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "the context of a scratchpad is bound once, when it is made");
        return nullptr;
    }
    Py_INCREF(names);
    Py_INCREF(context);
    self->context = context;
    self->names = names;
    Py_RETURN_NONE;
}

PyObject* pad_max_size(PyObject* object_self, void*) {
    const Scratchpad* pad = as_pad(object_self)->pad;
    return PyLong_FromSize_t(pad == nullptr ? 0 : pad->max_size());
}

PyObject* pad_ttl(PyObject* object_self, void*) {
    const Scratchpad* pad = as_pad(object_self)->pad;
    if (pad == nullptr || pad->ttl() == Scratchpad::kNoExpiry) Py_RETURN_NONE;
    return PyFloat_FromDouble(pad->ttl());
}

// The method table wants one function type for all call conventions.
template <class Function>
PyCFunction as_method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"get", as_method(pad_get), METH_FASTCALL | METH_KEYWORDS,
     "get($self, key, default=None)\n--\n\nThe value of a live key, which starts a new time to live; else "
     "default."},
    {"set", as_method(pad_set), METH_FASTCALL | METH_KEYWORDS,
     "set($self, key, value)\n--\n\nStore a value as the most recent entry; evicts the least recent one when "
     "full."},
    {"delete", as_method(pad_delete), METH_O,
     "delete($self, key, /)\n--\n\nRemove a key; True when it was live."},
    {"items", as_method(pad_items), METH_NOARGS,
     "items($self)\n--\n\nLive (key, value) pairs, least recent first; does not count as a read."},
    {"keys", as_method(pad_keys), METH_NOARGS, "keys($self)\n--\n\nLive keys, least recent first."},
    {"values", as_method(pad_values), METH_NOARGS, "values($self)\n--\n\nLive values, least recent first."},
    {"clear", as_method(pad_clear), METH_NOARGS, "clear($self)\n--\n\nRemove every entry."},
    {"bind_context", pad_bind_context, METH_VARARGS,
     "bind_context($self, names, values, /)\n--\n\nKeep the keys in the set `names` in the dict `values`: "
     "they neither expire nor count towards max_size."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kProperties[] = {
    {"max_size", pad_max_size, nullptr, "Largest number of entries.", nullptr},
    {"ttl", pad_ttl, nullptr, "Seconds an entry lives after its last write or read; None for ever.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

const char* const kDoc =
    "Scratchpad(max_size=50, ttl=300.0, clock=None)\n--\n\n"
    "Bounded map of str keys: least recently used out first, entries gone ttl seconds after their last write "
    "or read.";

PyType_Slot kSlots[] = {
    {Py_tp_doc, const_cast<char*>(kDoc)},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(pad_init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(pad_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(pad_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(pad_clear_references)},
    {Py_tp_iter, reinterpret_cast<void*>(pad_iter)},
    {Py_tp_methods, kMethods},
    {Py_tp_getset, kProperties},
    {Py_mp_length, reinterpret_cast<void*>(pad_length)},
    {Py_sq_contains, reinterpret_cast<void*>(pad_contains)},
    {0, nullptr},
};

PyType_Spec kSpec = {
    "twofold._core.Scratchpad",
    static_cast<int>(sizeof(PadObject)),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    kSlots,
};

}  // namespace

void bind_scratchpad(py::module_& m) {
    PyObject* type = PyType_FromModuleAndSpec(m.ptr(), &kSpec, nullptr);
    if (type == nullptr) throw py::error_already_set();
    m.add_object("Scratchpad", py::reinterpret_steal<py::object>(type));
}
