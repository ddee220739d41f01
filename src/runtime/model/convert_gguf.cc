// A model written as one GGUF file.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/folder.h"
#include "core/text.h"
#include "importers/directory.h"
#include "importers/gguf/gguf_publish.h"
#include "runtime/model/convert.h"
#include "runtime/model/convert_folder.h"
#include "runtime/model/files.h"
#include "weights/resumable_file.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

void CheckTarget(const ModelPath& from, const std::string& path,
                 bool overwrite) {
  std::error_code none;
  if (fs::equivalent(from.path(), path, none)) {
    throw ArgumentError("output file", "another one than the model", path);
  }
  if (fs::is_directory(path, none)) {
    throw ArgumentError("output file", "the name of a file, as model.gguf",
                        StrCat("the folder ", path));
  }
  if (!overwrite && fs::exists(path, none)) {
    throw ArgumentError(path, "a name that no file has, or --overwrite",
                        "a file");
  }
}

// Of the tokenizer; those of one that GGUF cannot hold say that tokens are
// numbers, and `left_out` why.
VocabularyKeys VocabularyOfModel(const ModelPath& from,
                                 const ModelConfig& config,
                                 std::string& left_out) {
  if (from.HasVocabulary()) return OfModel(from.Vocabulary());
  Result<VocabularyKeys> keys = OfModel(OpenTokenizer(from, config)).ToKeys();
  if (keys.ok()) return std::move(keys).Take();
  left_out = StrCat("the tokenizer (", keys.error().what(), ")");
  VocabularyKeys none;
  none.model = "none";
  return none;
}

GgufForm FormOf(const ModelPath& from, const std::string& numbers,
                std::string& left_out) {
  const ModelConfig config = OfModel(ReadModelConfig(from));
  const ModelFiles files = OfModel(OpenModelFiles(from, config));
  const VocabularyKeys vocabulary = VocabularyOfModel(from, config, left_out);
  const auto weights = WithoutMtp(files.weights);
  if (weights != files.weights) {
    left_out += StrCat(left_out.empty() ? "" : " and ",
                       "the extra prediction head (mtp.*)");
  }
  Result<GgufForm> form =
      PublishGguf(config, weights, vocabulary, from, numbers);
  if (form.ok()) return std::move(form).Take();
  const Error& error = form.error();
  if (error.code() == ErrorCode::kArgument ||
      error.where().starts_with(from.path())) {
    Throw(error);
  }
  Throw(InFolder(from.path(), error));
}

}  // namespace

std::vector<std::string> ExportedNumbers() { return GgufNumberTypes(); }

Converted ExportGguf(const ModelPath& from, const std::string& path,
                     const std::string& numbers,
                     const ConvertOptions& options) {
  CheckTarget(from, path, options.overwrite);
  Converted converted;
  const GgufForm form = FormOf(from, numbers, converted.left_out);
  const std::string parent = fs::path(path).parent_path().string();
  const std::string dir = parent.empty() ? "." : parent;
  train::MakeWritableFolder(dir);
  const FileDescriptor lock = LockFolder(dir);
  GgufWriteOptions file;
  file.stored = form.stored;
  file.progress = options.progress;
  const std::string head = GgufHead(*form.weights, form.keys, file);
  converted.model_type = form.architecture;
  converted.tensors = form.weights->tensors().size();
  for (const WeightTensor& tensor : form.weights->tensors()) {
    converted.numbers += static_cast<uint64_t>(tensor.elements());
  }
  converted.bytes = GgufDataBytes(*form.weights, file);
  ResumableFile to(
      path, ConversionKey(from.path(), head, form.model_type, options.build),
      head.size() + converted.bytes, options.step);
  file.begun = to.Begun();
  try {
    train::CheckFreeSpace(
        dir, converted.bytes - std::min(converted.bytes, file.begun));
    WriteGguf(*form.weights, form.keys, file, to);
    to.Commit();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) to.Discard();
    throw;
  }
  const std::string name = fs::path(path).filename().string();
  converted.files = {name};
  // Of exports of other models and with other arguments.
  for (const std::string& rest : NamesWith(dir, {name + ".partial-"})) {
    std::error_code none;
    fs::remove(fs::path(dir) / rest, none);
  }
  return converted;
}

}  // namespace tarn
