// Rows of the tables that Python reads: functions, methods, properties and
// constructors, each out of a C++ function and the types of its arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "python/binding/arguments.h"
#include "python/binding/class.h"
#include "python/binding/object.h"
#include "python/binding/results.h"
#include "python/errors_module.h"

namespace tarn::python {

/// Runs f, which returns a reference; an exception becomes Python's error.
template <typename F>
PyObject* Guarded(const F& f) noexcept {
  try {
    return f().Release();
  } catch (...) {
    SetErrorFromException();
    return nullptr;
  }
}

/// A function's result and arguments; those of a method begin with its object.
template <typename F>
struct Signature;
template <typename R, typename... A>
struct Signature<R (*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<A...>;
};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(C&, A...)> {};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(const C&, A...)> {};

// A lambda as the function that it converts to; the others as they are.
template <typename F>
constexpr auto Plain(F f) {
  if constexpr (std::is_class_v<F>) {
    return +f;
  } else {
    return f;
  }
}
template <auto F>
using SignatureOf = Signature<decltype(Plain(F))>;

// A reference to a value of a Class comes through a pointer to it; everything
// else by value or constant reference.
template <typename T>
inline constexpr bool kConverts = requires(PyObject* object) {
  Argument<T>(object);
};
template <typename T, typename Bare = std::remove_cvref_t<T>>
using ArgumentOf = Argument<
    std::conditional_t<kConverts<Bare>, Bare, std::remove_cvref_t<T>*>>;

template <typename T>
decltype(auto) Unwrap(const Argument<T>& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return *argument.Get();
  } else {
    return argument.Get();
  }
}

/// A value of a Class refers to what it was made from: to the object whose
/// method made it, or, as a copy, to what that object refers to.
template <typename T>
Owned Finish(T result, PyObject* self) {
  if constexpr (requires { ToPython(std::move(result)); }) {
    return ToPython(std::move(result));
  } else {
    PyObject* owner = Class<T>::Is(self) ? Class<T>::OwnerOf(self) : self;
    return Class<T>::Wrap(std::make_unique<T>(std::move(result)), owner);
  }
}

template <auto F, size_t... i>
Owned Invoke(PyObject* const* objects, PyObject* self,
             std::index_sequence<i...>) {
  using Arguments = typename SignatureOf<F>::Arguments;
  [[maybe_unused]] const std::tuple<
      ArgumentOf<std::tuple_element_t<i, Arguments>>...>
      arguments{objects[i]...};
  const auto call = [&]() -> decltype(auto) {
    return std::invoke(F, Unwrap(std::get<i>(arguments))...);
  };
  if constexpr (std::is_void_v<typename SignatureOf<F>::Result>) {
    call();
    return None();
  } else {
    using Result = std::remove_cvref_t<typename SignatureOf<F>::Result>;
    return Finish<Result>(call(), self);
  }
}

template <auto F>
inline constexpr size_t kCount =
    std::tuple_size_v<typename SignatureOf<F>::Arguments>;

inline void CheckCount(Py_ssize_t given, size_t wanted) {
  if (given == static_cast<Py_ssize_t>(wanted)) return;
  PyErr_Format(PyExc_TypeError, "want %zu arguments, got %zd", wanted, given);
  throw ErrorIsSet();
}

/// F(arguments...) as a function of the module.
template <auto F>
PyMethodDef Function(const char* name) {
  const auto call = [](PyObject*, PyObject* const* given, Py_ssize_t n) {
    return Guarded([&] {
      CheckCount(n, kCount<F>);
      return Invoke<F>(given, nullptr, std::make_index_sequence<kCount<F>>());
    });
  };
  PyObject* (*plain)(PyObject*, PyObject* const*, Py_ssize_t) = call;
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(plain)),
          METH_FASTCALL, nullptr};
}

/// F(object, arguments...) or a member function as a method.
template <auto F>
PyMethodDef Method(const char* name) {
  const auto call = [](PyObject* self, PyObject* const* given, Py_ssize_t n) {
    return Guarded([&] {
      CheckCount(n, kCount<F> - 1);
      PyObject* objects[kCount<F>] = {self};
      std::copy_n(given, n, objects + 1);
      return Invoke<F>(objects, self, std::make_index_sequence<kCount<F>>());
    });
  };
  PyObject* (*plain)(PyObject*, PyObject* const*, Py_ssize_t) = call;
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(plain)),
          METH_FASTCALL, nullptr};
}

/// F(object) as a property that is read.
template <auto F>
PyGetSetDef Property(const char* name) {
  const auto get = [](PyObject* self, void*) {
    return Guarded(
        [&] { return Invoke<F>(&self, self, std::index_sequence<0>()); });
  };
  return {name, get, nullptr, nullptr, nullptr};
}

/// F(arguments...), a unique_ptr<T>, as the constructor of Class<T>. The
/// instance keeps its first `owners` arguments alive.
template <auto F, int owners>
PyObject* Construct(PyTypeObject*, PyObject* given, PyObject* named) {
  using T = typename SignatureOf<F>::Result::element_type;
  return Guarded([&] {
    constexpr size_t n = kCount<F>;
    CheckCount(PyTuple_Size(given) + (named ? PyDict_Size(named) : 0), n);
    PyObject* objects[n];
    for (size_t i = 0; i < n; ++i) {
      objects[i] = PyTuple_GetItem(given, static_cast<Py_ssize_t>(i));
      if (objects[i] == nullptr) throw ErrorIsSet();  // a named argument
    }
    return [&]<size_t... i>(std::index_sequence<i...>) {
      const std::tuple<ArgumentOf<
          std::tuple_element_t<i, typename SignatureOf<F>::Arguments>>...>
          arguments{objects[i]...};
      std::unique_ptr<T> value =
          std::invoke(F, Unwrap(std::get<i>(arguments))...);
      return Class<T>::Wrap(std::move(value), owners > 0 ? objects[0] : nullptr,
                            owners > 1 ? objects[1] : nullptr);
    }
    (std::make_index_sequence<n>());
  });
}

/// What ends a table of methods or properties.
inline constexpr PyMethodDef kLastMethod = {nullptr, nullptr, 0, nullptr};
inline constexpr PyGetSetDef kLastProperty = {nullptr, nullptr, nullptr,
                                              nullptr, nullptr};

}  // namespace tarn::python
