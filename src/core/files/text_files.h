// Texts under names of files: those of a model directory, or what stands for
// them in a model that is one file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/files/vocabulary_keys.h"

namespace tarn {

/// What readers of config.json, tokenizer.json and their like ask for.
/// Immutable; thread-safe.
class TextFiles {
 public:
  virtual ~TextFiles() = default;
  /// The directory or file to name in messages.
  virtual const std::string& path() const = 0;
  virtual bool Has(const std::string& name) const = 0;
  /// The contents of a file of at most `max_bytes`. IoError where there is
  /// none, FormatError where it is larger or cannot be made.
  virtual Result<std::string> Read(const std::string& name,
                                   uint64_t max_bytes) const = 0;

  /// Whether a tokenizer is there as keys, and not as tokenizer.json: those of
  /// a quarter of a million tokens are no text that is quick to read.
  /// FormatError for keys that are none. What they refer to lives as long as
  /// this object.
  virtual bool HasVocabulary() const { return false; }
  virtual Result<VocabularyKeys> Vocabulary() const {
    return IoError(path(), "a vocabulary", "none");
  }

  /// What messages call a file: "models/demo/config.json".
  std::string Where(const std::string& name) const {
    return path() + "/" + name;
  }
};

/// The files of a directory.
class FolderFiles final : public TextFiles {
 public:
  explicit FolderFiles(std::string dir) : dir_(std::move(dir)) {}
  const std::string& path() const override { return dir_; }
  bool Has(const std::string& name) const override;
  Result<std::string> Read(const std::string& name,
                           uint64_t max_bytes) const override;

 private:
  const std::string dir_;
};

}  // namespace tarn
