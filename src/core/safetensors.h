// The safetensors container: a strict reader that trusts nothing, and a writer
// whose output is the same bytes for the same tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"

namespace tarn {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data area
  bool is_bytes = false;        // U8, and `dtype` says nothing
  int64_t elements() const;
};

/// The types of elements that a reader takes: numbers (F32, BF16, F16), or also
/// bytes (U8), which hold codes and not numbers.
enum class SafetensorsTypes { kNumbers, kNumbersAndBytes };

/// An open weight file. Immutable after Open: any number of threads may read.
class SafetensorsFile {
 public:
  /// Validates the whole header before anything is used: size, strict JSON,
  /// dtypes, checked products, ranges that tile the data area exactly. Errors
  /// are FormatError (IoError when the file cannot be read) with file, tensor,
  /// byte offset, expected and found in one line. With `use_mmap` false, or for
  /// a file that is not regular, contents are copied.
  static Result<SafetensorsFile> Open(
      const std::string& path, bool use_mmap = true,
      SafetensorsTypes types = SafetensorsTypes::kNumbers);
  /// The same for a file's bytes in memory, which must outlive the object.
  /// `name` stands for the path in errors.
  static Result<SafetensorsFile> OfBytes(
      const std::string& name, std::span<const uint8_t> bytes,
      SafetensorsTypes types = SafetensorsTypes::kNumbers);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::vector<TensorEntry>& tensors() const;         // in data order
  const TensorEntry* Find(const std::string& name) const;  // null: absent
  const std::map<std::string, std::string>& metadata() const;
  /// Byte offset of the data area in the file; data of an entry.
  uint64_t data_offset() const;
  const uint8_t* Data(const TensorEntry& entry) const;  // may be unaligned
  /// Copies the tensor, widened to float32. out: elements() floats. Not for
  /// bytes.
  void ReadF32(const TensorEntry& entry, float* out) const;
  /// Gives the memory of a mapped tensor back to the system, which reads it
  /// again from the file when it is needed. Contents do not change.
  void Release(const TensorEntry& entry) const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A tensor to write. `data` holds elements() values of `dtype`, dense; it is
/// not read where a caller writes the data itself (SafetensorsHead).
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  bool is_bytes = false;  // U8, and `dtype` says nothing
};

/// Bytes of one element.
constexpr size_t ElementBytes(const TensorToWrite& tensor) {
  return tensor.is_bytes ? 1 : DTypeBytes(tensor.dtype);
}

/// The order of the data: by element size, largest first, otherwise as given,
/// which puts every tensor at a multiple of its elements' size; or all as
/// given.
enum class SafetensorsOrder { kLargestFirst, kAsGiven };

/// Writes to a temporary next to `path`, syncs, renames: the file is either the
/// old or the new one, and a failure leaves nothing behind. Throws IoError.
/// The header is padded to 64 bytes; the order is kLargestFirst.
void WriteSafetensors(const std::string& path,
                      const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata);

/// What such a file begins with, length and header; the data must follow
/// without a gap, in `order`. For callers whose data is not dense. Throws
/// ArgumentError, ShapeError.
std::string SafetensorsHead(
    const std::vector<TensorToWrite>& tensors,
    const std::map<std::string, std::string>& metadata,
    SafetensorsOrder order = SafetensorsOrder::kLargestFirst);

}  // namespace tarn
