#include "python/binding/array.h"

#include <cstring>

namespace tarn::python {
namespace {

// What numpy calls the entries of a buffer: "i" and "=i" are the same here.
bool IsFormat(const char* given, char format) {
  if (given == nullptr) return format == 'B';
  if (std::strchr("@=<", given[0]) != nullptr && given[0] != '\0') ++given;
  return given[0] == format && given[1] == '\0';
}

}  // namespace

Buffer::Buffer(PyObject* object, char format, int dims, bool writable) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
  if (PyObject_GetBuffer(object, &view_,
                         writable ? flags | PyBUF_WRITABLE : flags) != 0) {
    throw ErrorIsSet();
  }
  if (view_.ndim != dims || !IsFormat(view_.format, format)) {
    PyErr_Format(PyExc_TypeError,
                 "want an array of %d axes of '%c', got %d axes of '%s'", dims,
                 format, view_.ndim, view_.format ? view_.format : "B");
    PyBuffer_Release(&view_);
    throw ErrorIsSet();
  }
}

Owned EmptyArray(std::span<const size_t> shape, char format) {
  // numpy stays loaded, and so does its function.
  static PyObject* const empty = [] {
    const Owned numpy(PyImport_ImportModule("numpy"));
    return Owned(PyObject_GetAttrString(numpy.get(), "empty")).Release();
  }();
  const Owned sizes(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t i = 0; i < shape.size(); ++i) {
    Owned size(PyLong_FromSize_t(shape[i]));
    PyTuple_SetItem(sizes.get(), static_cast<Py_ssize_t>(i), size.Release());
  }
  const char name[] = {format, '\0'};
  return Owned(PyObject_CallFunction(empty, "Os", sizes.get(), name));
}

}  // namespace tarn::python
