// The keys of a GGUF file's architecture, read one by one: what no row asks for
// is an error, so that no option is ignored silently.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf/gguf_file.h"
#include "weights/weight_source.h"

namespace tarn {

/// Keys are named without the architecture: "block_count" is
/// "llama.block_count". All functions throw FormatError that names file and
/// key. Not thread-safe.
class GgufKeys {
 public:
  /// weights: GgufWeights of the file.
  GgufKeys(const GgufFile& file, const WeightSource& weights);

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  bool Has(std::string_view key) const;

  /// The value of a key, which must be there; those with a default may lack it.
  int64_t Integer(std::string_view key, int64_t least, int64_t most);
  int64_t Integer(std::string_view key, int64_t least, int64_t most,
                  int64_t value);
  /// Of a float32 the shortest decimal number that rounds to it.
  double Real(std::string_view key);
  double Real(std::string_view key, double value);
  bool Flag(std::string_view key, bool value);
  std::string Text(std::string_view key, const std::string& value);
  /// `count` numbers, one for each layer: of an array, or a single value for
  /// all of them.
  std::vector<int64_t> PerLayer(std::string_view key, int64_t least,
                                int64_t most, int64_t count);
  /// An array of at most `most_items`; empty where the key is absent.
  std::vector<int64_t> Integers(std::string_view key, int64_t least,
                                int64_t most, uint64_t most_items);
  std::vector<bool> Flags(std::string_view key, uint64_t most_items);

  /// Keys that say nothing about the function that the model computes.
  void Ignore(std::initializer_list<const char*> keys);
  /// Refuses another value than the only one that can be run; absent: that one.
  void Want(std::string_view key, bool value);
  void Want(std::string_view key, const char* value);
  /// Throws for a key of the architecture that was not read.
  void RequireAllRead() const;
  [[noreturn]] void Refuse(std::string_view key, const std::string& wanted,
                           const std::string& given) const;

  /// A tensor of the file by its whole name, its shape as of PyTorch (the
  /// tensor must be there), and its numbers, of which there may be `most`.
  bool HasTensor(std::string_view name) const;
  const std::vector<int64_t>& ShapeOf(std::string_view name) const;
  std::vector<float> Numbers(std::string_view name, int64_t most) const;

 private:
  std::string Whole(std::string_view key) const;
  const std::string& Read(const std::string& whole);

  const GgufFile& file_;
  const WeightSource& weights_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tarn
