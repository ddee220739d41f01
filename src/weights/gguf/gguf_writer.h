// A source written as one GGUF file, a few rows at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "weights/gguf/encodings.h"
#include "weights/gguf/gguf_file.h"
#include "weights/weight_source.h"

namespace tarn {

/// Keys with values in their order, as bytes of a file. All functions throw
/// ArgumentError for a key that is there already.
class GgufKeyList {
 public:
  void U32(std::string_view key, int64_t value);
  void I32(std::string_view key, int64_t value);
  void F32(std::string_view key, double value);
  void Bool(std::string_view key, bool value);
  void Text(std::string_view key, std::string_view value);
  void I32s(std::string_view key, std::span<const int64_t> values);
  void F32s(std::string_view key, std::span<const float> values);
  void Bools(std::string_view key, const std::vector<bool>& values);
  void Texts(std::string_view key, std::span<const std::string> values);

  bool Has(std::string_view key) const;
  uint64_t count() const { return keys_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Begin(std::string_view key, GgufType type);
  void BeginArray(std::string_view key, GgufType item, uint64_t count);
  template <typename T>
  void Put(T value);
  void PutText(std::string_view text);

  std::vector<std::string> keys_;
  std::string bytes_;
};

struct GgufWriteOptions {
  /// How a tensor is stored; one with `narrow`, whose blocks fill the tensor's
  /// rows.
  std::function<const Encoding&(const WeightTensor& tensor)> stored;
  /// Bytes of the file that the sink has already, which are neither read nor
  /// written.
  uint64_t begun = 0;
  /// As of WeightFileOptions.
  std::function<bool(uint64_t done, uint64_t total)> progress = nullptr;
};

/// What the file begins with: keys, tensor table, and padding up to the data.
std::string GgufHead(const WeightSource& source, const GgufKeyList& keys,
                     const GgufWriteOptions& options);

/// Bytes of the file's data, padding included.
uint64_t GgufDataBytes(const WeightSource& source,
                       const GgufWriteOptions& options);

/// Writes all tensors in their order. Memory: some MiB, and what the source
/// takes. Throws ArgumentError for a name or shape that GGUF cannot hold,
/// IoError, and what the source throws.
void WriteGguf(const WeightSource& source, const GgufKeyList& keys,
               const GgufWriteOptions& options, ByteSink& to);

}  // namespace tarn
