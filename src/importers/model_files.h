// What front ends open: a model directory or a GGUF file, whose texts and
// weights stand for those of the directory that it was converted from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/files/text_files.h"

namespace tarn {

class WeightSource;

/// A model by its path: a GGUF file where the path is that of a file, else a
/// directory. A value, cheap to copy; copies share what was read. Nothing is
/// opened before it is asked for, and the header of a GGUF file is read once.
/// Thread-safe.
class ModelPath final : public TextFiles {
 public:
  ModelPath(std::string path);  // NOLINT: implicit, paths are texts
  ModelPath(const char* path) : ModelPath(std::string(path)) {}  // NOLINT
  ModelPath(const std::filesystem::path& path)                   // NOLINT
      : ModelPath(path.string()) {}

  const std::string& path() const override;
  /// Whether it is one file.
  bool IsFile() const;
  /// Names of files of a directory: "config.json", "tokenizer.json",
  /// "tokenizer_config.json", "chat_template.jinja", "generation_config.json".
  bool Has(const std::string& name) const override;
  Result<std::string> Read(const std::string& name,
                           uint64_t max_bytes) const override;
  bool HasVocabulary() const override;
  Result<VocabularyKeys> Vocabulary() const override;
  /// The weights under the names that go with config.json: OpenWeightSource of
  /// a directory; of a GGUF file those of the published model.
  Result<std::shared_ptr<const WeightSource>> Weights(
      bool use_mmap = true) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tarn
