// A GGUF file as the published directory that it was converted from, and a
// published model as a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/files/text_files.h"
#include "weights/gguf/gguf_file.h"
#include "weights/gguf/gguf_writer.h"
#include "weights/weight_source.h"

namespace tarn {

/// Immutable; thread-safe.
class GgufModel final : public TextFiles {
 public:
  /// Reads all but the weights. IoError or FormatError in one line.
  static Result<std::shared_ptr<const GgufModel>> Open(const std::string& path,
                                                       bool use_mmap = true);

  const GgufFile& file() const { return *file_; }
  const std::string& path() const override { return file_->path(); }
  bool Has(const std::string& name) const override;
  Result<std::string> Read(const std::string& name,
                           uint64_t max_bytes) const override;
  /// The published model's tensors.
  Result<std::shared_ptr<const WeightSource>> Weights() const;

 private:
  explicit GgufModel(std::shared_ptr<const GgufFile> file);
  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const WeightSource> weights_;
};

/// A file to write.
struct GgufForm {
  std::string architecture, model_type;
  GgufKeyList keys;
  std::shared_ptr<const WeightSource> weights;  // under the file's names
};

/// The types that become GGUF files.
std::vector<const char*> GgufModelTypes();

/// A finished configuration and its weights as a GGUF file; texts: of its
/// tokenizer and template. type: of numbers, "f32" and so on, for keys. Errors
/// as Publish.
Result<GgufForm> PublishGguf(const ModelConfig& config,
                             std::shared_ptr<const WeightSource> weights,
                             const TextFiles& texts);

}  // namespace tarn
