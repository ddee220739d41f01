// A GGUF file as the published directory that it was converted from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/files/text_files.h"
#include "importers/gguf/text_keys.h"
#include "weights/gguf/gguf_file.h"
#include "weights/weight_source.h"

namespace tarn {

struct GgufArchitecture;

/// Immutable; thread-safe.
class GgufModel final : public TextFiles {
 public:
  /// Reads and checks all but the weights' numbers; the file's keys become a
  /// config.json. IoError or FormatError in one line.
  static Result<std::shared_ptr<const GgufModel>> Open(const std::string& path,
                                                       bool use_mmap = true);

  const GgufFile& file() const { return *file_; }
  const std::string& path() const override { return file_->path(); }
  bool Has(const std::string& name) const override;
  Result<std::string> Read(const std::string& name,
                           uint64_t max_bytes) const override;
  bool HasVocabulary() const override { return HasVocabularyKeys(*file_); }
  Result<VocabularyKeys> Vocabulary() const override;
  /// The published model's tensors.
  Result<std::shared_ptr<const WeightSource>> Weights() const;

 private:
  explicit GgufModel(std::shared_ptr<const GgufFile> file);

  const std::shared_ptr<const GgufFile> file_;
  const std::shared_ptr<const WeightSource> weights_;
  const GgufArchitecture* row_ = nullptr;
  std::string config_;  // text of config.json
};

}  // namespace tarn
