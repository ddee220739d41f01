#include "importers/model_files.h"

#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "importers/gguf/gguf_model.h"
#include "weights/weight_source.h"

namespace tarn {

using GgufResult = Result<std::shared_ptr<const GgufModel>>;

struct ModelPath::Shared {
  explicit Shared(std::string path) : folder(std::move(path)) {
    std::error_code none;
    is_file = std::filesystem::is_regular_file(folder.path(), none);
  }
  // The file, opened once.
  const GgufResult& Gguf() {
    std::call_once(once, [this] { gguf.emplace(GgufModel::Open(path())); });
    return *gguf;
  }
  const std::string& path() const { return folder.path(); }

  const FolderFiles folder;
  bool is_file;
  std::once_flag once;
  std::optional<GgufResult> gguf;
};

ModelPath::ModelPath(std::string path)
    : shared_(std::make_shared<Shared>(std::move(path))) {}

const std::string& ModelPath::path() const { return shared_->path(); }

bool ModelPath::IsFile() const { return shared_->is_file; }

bool ModelPath::Has(const std::string& name) const {
  if (!IsFile()) return shared_->folder.Has(name);
  return shared_->Gguf().ok() && shared_->Gguf().value()->Has(name);
}

Result<std::string> ModelPath::Read(const std::string& name,
                                    uint64_t max_bytes) const {
  if (!IsFile()) return shared_->folder.Read(name, max_bytes);
  if (!shared_->Gguf().ok()) return shared_->Gguf().error();
  return shared_->Gguf().value()->Read(name, max_bytes);
}

bool ModelPath::HasVocabulary() const {
  return IsFile() && shared_->Gguf().ok() &&
         shared_->Gguf().value()->HasVocabulary();
}

Result<VocabularyKeys> ModelPath::Vocabulary() const {
  if (!IsFile()) return TextFiles::Vocabulary();
  if (!shared_->Gguf().ok()) return shared_->Gguf().error();
  return shared_->Gguf().value()->Vocabulary();
}

Result<std::shared_ptr<const WeightSource>> ModelPath::Weights(
    bool use_mmap) const {
  if (!IsFile()) return OpenWeightSource(path(), use_mmap);
  if (use_mmap) {
    if (!shared_->Gguf().ok()) return shared_->Gguf().error();
    return shared_->Gguf().value()->Weights();
  }
  const GgufResult copied = GgufModel::Open(path(), false);
  if (!copied.ok()) return copied.error();
  return copied.value()->Weights();
}

}  // namespace tarn
