// Results of C++ functions as objects of Python.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "python/binding/array.h"
#include "python/binding/class.h"
#include "python/binding/object.h"

namespace tarn::python {

/// A result that becomes `bytes`.
struct NewBytes {
  std::string text;
};

template <std::integral T>
Owned ToPython(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return Owned(PyBool_FromLong(value));
  } else if constexpr (std::is_signed_v<T>) {
    return Owned(PyLong_FromLongLong(value));
  } else {
    return Owned(PyLong_FromUnsignedLongLong(value));
  }
}

inline Owned ToPython(double value) { return Owned(PyFloat_FromDouble(value)); }

inline Owned ToPython(const std::string& text) {
  return Owned(PyUnicode_FromStringAndSize(
      text.data(), static_cast<Py_ssize_t>(text.size())));
}

inline Owned ToPython(const NewBytes& bytes) {
  return Owned(PyBytes_FromStringAndSize(
      bytes.text.data(), static_cast<Py_ssize_t>(bytes.text.size())));
}

inline Owned ToPython(Owned object) { return object; }

template <typename T, int Dims>
Owned ToPython(NewArray<T, Dims> array) {
  return array.Take();
}

template <typename... Ts>
Owned ToPython(const std::tuple<Ts...>& values);
template <typename... Ts>
Owned ToPython(const std::variant<Ts...>& value);

template <typename T>
Owned ToPython(const std::vector<T>& values) {
  Owned list(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i),
                   ToPython(values[i]).Release());
  }
  return list;
}

template <typename... Ts>
Owned ToPython(const std::tuple<Ts...>& values) {
  Owned tuple(PyTuple_New(sizeof...(Ts)));
  Py_ssize_t i = 0;
  std::apply(
      [&](const Ts&... value) {
        (PyTuple_SetItem(tuple.get(), i++, ToPython(value).Release()), ...);
      },
      values);
  return tuple;
}

template <typename... Ts>
Owned ToPython(const std::variant<Ts...>& value) {
  return std::visit([](const auto& held) { return ToPython(held); }, value);
}

template <typename T>
Owned ToPython(std::optional<T> value) {
  return value ? ToPython(std::move(*value)) : None();
}

}  // namespace tarn::python
