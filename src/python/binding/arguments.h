// Python's objects as the arguments of C++ functions. What a function of the
// package passes is checked there, with the argument's name; here any mismatch
// is a TypeError or OverflowError.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/binding/array.h"
#include "python/binding/class.h"
#include "python/binding/object.h"

namespace tarn::python {

/// What Get() returns is valid as long as the Argument.
template <typename T>
class Argument;

/// Bytes of a `bytes` object.
struct Bytes {
  std::string_view text;
};

template <std::integral T>
class Argument<T> {
 public:
  explicit Argument(PyObject* object) {
    const Owned number(PyNumber_Index(object));
    if constexpr (std::is_signed_v<T>) {
      const long long value = PyLong_AsLongLong(number.get());
      if (value == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet();
      Set(value);
    } else {
      const unsigned long long value = PyLong_AsUnsignedLongLong(number.get());
      if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
      Set(value);
    }
  }
  T Get() const { return value_; }

 private:
  template <typename Wide>
  void Set(Wide value) {
    if (!std::in_range<T>(value)) {
      PyErr_SetString(PyExc_OverflowError, "a number that is too large");
      throw ErrorIsSet();
    }
    value_ = static_cast<T>(value);
  }

  T value_;
};

template <>
class Argument<bool> {
 public:
  explicit Argument(PyObject* object) : value_(object == Py_True) {
    if (object == Py_True || object == Py_False) return;
    PyErr_SetString(PyExc_TypeError, "want True or False");
    throw ErrorIsSet();
  }
  bool Get() const { return value_; }

 private:
  bool value_;
};

template <>
class Argument<double> {
 public:
  explicit Argument(PyObject* object) : value_(PyFloat_AsDouble(object)) {
    if (value_ == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet();
  }
  double Get() const { return value_; }

 private:
  double value_;
};

template <>
class Argument<std::string> {
 public:
  explicit Argument(PyObject* object) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) throw ErrorIsSet();
    text_.assign(text, static_cast<size_t>(size));
  }
  const std::string& Get() const { return text_; }

 private:
  std::string text_;
};

template <>
class Argument<Bytes> {
 public:
  explicit Argument(PyObject* object) {
    char* text = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(object, &text, &size) != 0) throw ErrorIsSet();
    bytes_.text = {text, static_cast<size_t>(size)};
  }
  Bytes Get() const { return bytes_; }

 private:
  Bytes bytes_;
};

template <typename T, int Dims>
class Argument<ArrayView<T, Dims>> {
 public:
  explicit Argument(PyObject* object) : view_(object) {}
  const ArrayView<T, Dims>& Get() const { return view_; }
  ArrayView<T, Dims> Take() { return std::move(view_); }

 private:
  ArrayView<T, Dims> view_;
};

/// A pointer to what an instance of a Class holds.
template <typename T>
class Argument<T*> {
 public:
  explicit Argument(PyObject* object)
      : value_(Class<std::remove_const_t<T>>::Of(object)) {}
  T* Get() const { return value_; }

 private:
  T* value_;
};

/// A list of any of the others; its objects stay alive with the caller's list.
template <typename T>
class Argument<std::vector<T>> {
 public:
  explicit Argument(PyObject* object) {
    if (!PyList_Check(object)) {
      PyErr_SetString(PyExc_TypeError, "want a list");
      throw ErrorIsSet();
    }
    const Py_ssize_t size = PyList_Size(object);
    for (Py_ssize_t i = 0; i < size; ++i) {
      Argument<T> item(PyList_GetItem(object, i));
      if constexpr (requires { item.Take(); }) {
        items_.push_back(item.Take());
      } else {
        items_.push_back(item.Get());
      }
    }
  }
  const std::vector<T>& Get() const { return items_; }

 private:
  std::vector<T> items_;
};

template <typename... Ts>
class Argument<std::tuple<Ts...>> {
 public:
  explicit Argument(PyObject* object)
      : value_(Read(object, std::index_sequence_for<Ts...>())) {}
  const std::tuple<Ts...>& Get() const { return value_; }

 private:
  template <size_t... i>
  static std::tuple<Ts...> Read(PyObject* object, std::index_sequence<i...>) {
    if (!PyTuple_Check(object) || PyTuple_Size(object) != sizeof...(Ts)) {
      PyErr_Format(PyExc_TypeError, "want a tuple of %d",
                   static_cast<int>(sizeof...(Ts)));
      throw ErrorIsSet();
    }
    return {Argument<Ts>(PyTuple_GetItem(object, i)).Get()...};
  }

  std::tuple<Ts...> value_;
};

}  // namespace tarn::python
