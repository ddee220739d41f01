// The folder that a conversion writes (convert.h): one that was interrupted
// continues in its partial files, and all files appear at the end, by rename.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "weights/resumable_file.h"

namespace tarn {

/// What the bytes of a conversion depend on, as a word: the build, the files of
/// `from` by names, sizes and times (or `from` itself, a file), the
/// configuration, and the head of the weight file, which says how tensors are
/// stored.
std::string ConversionKey(const std::string& from, const std::string& head,
                          const std::string& config, const std::string& build);

/// What is read from the model that is converted: files that it lacks are its
/// fault, a FormatError. Throws the result's error.
template <typename T>
T OfModel(Result<T> result) {
  if (result.ok() || result.error().code() != ErrorCode::kIo) {
    return std::move(result).Take();
  }
  const Error& error = result.error();
  throw FormatError(error.where(), error.wanted(), error.given());
}

/// The names in a folder that begin with one of these texts.
std::vector<std::string> NamesWith(const std::string& dir,
                                   const std::vector<std::string>& begins);
/// Keeps other conversions out of a folder as long as the result lives. Throws
/// IoError where one runs there.
FileDescriptor LockFolder(const std::string& dir);

/// Throws IoError, and ArgumentError as ImportModel.
class ConvertFolder {
 public:
  /// key: a conversion with the same key that was interrupted is continued. A
  /// model in the folder stays unless `overwrite`.
  ConvertFolder(const std::string& from, std::string dir,
                const std::string& key, bool overwrite);
  /// Without Commit: what was begun goes, unless it is to be continued.
  ~ConvertFolder();
  ConvertFolder(const ConvertFolder&) = delete;
  ConvertFolder& operator=(const ConvertFolder&) = delete;

  /// The weight file, of this many bytes.
  ResumableFile& Weights(uint64_t bytes, uint64_t step);
  void Add(const std::string& name, std::string_view text);
  /// The conversion was interrupted: another one continues.
  void Keep() { kept_ = true; }
  /// The weights, then the files in the order of Add, in which the
  /// configuration is the last. A model that is replaced loses its
  /// configuration first and what it has besides. Returns the names.
  std::vector<std::string> Commit();

 private:
  void RemoveTemporaries();
  void RemoveShards();
  void Remove(const std::string& name);

  const std::string dir_, key_;
  const std::string marker_;  // a file that is there while a conversion is open
  FileDescriptor lock_;
  std::optional<ResumableFile> weights_;
  std::vector<std::pair<std::string, std::unique_ptr<AtomicFile>>> files_;
  bool kept_ = false;
};

}  // namespace tarn
