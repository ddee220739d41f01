// Arrays of numpy: views of those that come in, and new ones for results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "python/binding/object.h"

namespace tarn::python {

/// A contiguous buffer of an object, released with the last reference to it.
class Buffer {
 public:
  /// dims axes of entries whose letter in Python's struct module is `format`.
  /// Throws ErrorIsSet (TypeError, BufferError) for anything else.
  Buffer(PyObject* object, char format, int dims, bool writable);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  void* data() const { return view_.buf; }
  size_t shape(int axis) const {
    return static_cast<size_t>(view_.shape[axis]);
  }

 private:
  Py_buffer view_;
};

template <typename T>
inline constexpr char kFormat = '?';
template <>
inline constexpr char kFormat<int32_t> = 'i';
template <>
inline constexpr char kFormat<uint8_t> = 'B';
template <>
inline constexpr char kFormat<float> = 'f';
template <>
inline constexpr char kFormat<double> = 'd';

/// An argument: a contiguous array of `Dims` axes, read only.
template <typename T, int Dims>
class ArrayView {
 public:
  explicit ArrayView(PyObject* object)
      : buffer_(std::make_unique<Buffer>(object, kFormat<T>, Dims, false)) {}

  const T* data() const { return static_cast<const T*>(buffer_->data()); }
  size_t shape(int axis) const { return buffer_->shape(axis); }
  std::span<const T> Flat() const {
    size_t count = 1;
    for (int axis = 0; axis < Dims; ++axis) count *= shape(axis);
    return {data(), count};
  }

 private:
  std::unique_ptr<Buffer> buffer_;
};

/// numpy.empty(shape, dtype=format).
Owned EmptyArray(std::span<const size_t> shape, char format);

/// A result: an uninitialised array of numpy that is written through data().
template <typename T, int Dims>
class NewArray {
 public:
  explicit NewArray(const size_t (&shape)[Dims])
      : object_(EmptyArray(shape, kFormat<T>)),
        buffer_(
            std::make_unique<Buffer>(object_.get(), kFormat<T>, Dims, true)) {}

  T* data() const { return static_cast<T*>(buffer_->data()); }
  /// The array itself, which data() is no longer valid for.
  Owned Take() {
    buffer_.reset();
    return std::move(object_);
  }

 private:
  Owned object_;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace tarn::python
