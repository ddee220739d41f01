// The GGUF container: keys with values and a table of tensors. A strict reader
// that trusts nothing: ggml's docs/gguf.md says what a file holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "weights/encoding.h"

namespace tarn {

/// Types of values, by their numbers in files.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// Keys and tensor table together; published files have some 16 MiB, of
/// tokenizers.
inline constexpr uint64_t kMaxGgufHeader = uint64_t{1} << 28;
inline constexpr uint64_t kMaxGgufTensors = uint64_t{1} << 18;
inline constexpr uint64_t kMaxGgufKeys = uint64_t{1} << 16;
inline constexpr uint64_t kMaxGgufAxes = 4;
/// Bytes of the name of a key and of a tensor (ggml's GGML_MAX_NAME, less the
/// NUL).
inline constexpr uint64_t kMaxGgufKeyBytes = 65535, kMaxGgufNameBytes = 63;

/// Whether the path is that of a file that begins like a GGUF file. Opens no
/// pipe.
bool IsGgufFile(const std::string& path);

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // as of PyTorch: the fastest axis is the last
  const Encoding* encoding = nullptr;
  uint64_t begin = 0, bytes = 0;  // from the start of the data area
};

/// Texts of an array, one after the other.
class GgufStrings {
 public:
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  void Add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }

 private:
  std::string bytes_;
  std::vector<uint64_t> ends_;
};

/// An open file. Immutable after Open: any number of threads may read. Values
/// are copies, so that what was checked stays as it is.
class GgufFile {
 public:
  /// Validates everything before the data: counts and lengths against the
  /// file's size before memory is taken, types, names that occur once, checked
  /// products and sums, offsets that are the running sum of padded sizes, and
  /// data that ends within the file. FormatError, or IoError where the file
  /// cannot be read, in one line. use_mmap false: contents are copied. Time
  /// and memory O(bytes before the data).
  static Result<GgufFile> Open(const std::string& path, bool use_mmap = true);
  /// The same of bytes in memory, which must outlive the object. `name` stands
  /// for the path in errors.
  static Result<GgufFile> OfBytes(const std::string& name,
                                  std::span<const uint8_t> bytes);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;
  uint32_t version() const;                        // 2 or 3, which are alike
  const std::vector<GgufTensor>& tensors() const;  // in data order
  const GgufTensor* Find(std::string_view tensor) const;  // null: absent
  const std::vector<std::string>& keys() const;           // in file order

  bool Has(std::string_view key) const;
  /// kArray for arrays, whose items ItemType has. The key must be there.
  GgufType TypeOf(std::string_view key) const;
  GgufType ItemTypeOf(std::string_view key) const;
  /// Items of an array; 1 for other values. The key must be there.
  uint64_t CountOf(std::string_view key) const;

  /// Values of one type, by key. All throw FormatError that names file and key
  /// where the key is absent, its value has another type, or a number is
  /// outside [least, most]. Integers: of any integer type. Reals: f32 and f64,
  /// finite, and integers.
  int64_t Integer(std::string_view key, int64_t least, int64_t most) const;
  double Real(std::string_view key, double least, double most) const;
  bool Flag(std::string_view key) const;
  const std::string& Text(std::string_view key) const;
  /// Arrays of at most `count` items.
  std::vector<int64_t> Integers(std::string_view key, int64_t least,
                                int64_t most, uint64_t count) const;
  std::vector<double> Reals(std::string_view key, uint64_t count) const;
  std::vector<bool> Flags(std::string_view key, uint64_t count) const;
  const GgufStrings& Strings(std::string_view key, uint64_t count) const;

  /// "FILE: key 'llama.block_count'", for messages.
  std::string Where(std::string_view key) const;

  /// Byte offset of the data area in the file; data of a tensor, which may be
  /// unaligned.
  uint64_t data_offset() const;
  const uint8_t* Data(const GgufTensor& tensor) const;
  /// Gives the memory of a mapped tensor back to the system.
  void Release(const GgufTensor& tensor) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn
