// Python's objects through the limited API of Python 3.11: one build of the
// extension serves that version and every later one.
#pragma once

#include <Python.h>

#include <utility>

namespace tarn::python {

/// Thrown where Python's own error is already set.
struct ErrorIsSet {};

/// One reference to an object, or none.
class Owned {
 public:
  Owned() = default;
  /// Takes over a new reference. Throws ErrorIsSet for null, as Python's
  /// functions return it after an error.
  explicit Owned(PyObject* object) : object_(object) {
    if (object == nullptr) throw ErrorIsSet();
  }
  Owned(Owned&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  /// Hands the reference to the caller.
  PyObject* Release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

inline Owned None() {
  Py_INCREF(Py_None);
  return Owned(Py_None);
}

/// Lets other threads of Python run for as long as it exists.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { PyEval_RestoreThread(thread_); }

 private:
  PyThreadState* thread_;
};

/// Holds the interpreter's lock, in any thread.
class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace tarn::python
