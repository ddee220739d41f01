#include "runtime/model/convert.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "importers/generation_config.h"
#include "importers/publish.h"
#include "runtime/model/files.h"
#include "text/tokenizer.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kTokenizerName = "tokenizer.json";
constexpr const char* kGenerationName = "generation_config.json";
constexpr uint64_t kMaxCompanionBytes = 64 << 20;

template <typename T>
T Taken(Result<T> result) {
  if (!result.ok()) Throw(result.error());
  return std::move(result).Take();
}

// The same of what is read from the model: files that it lacks are its fault.
template <typename T>
T Read(Result<T> result) {
  if (result.ok() || result.error().code() != ErrorCode::kIo) {
    return Taken(std::move(result));
  }
  const Error& error = result.error();
  throw FormatError(error.where(), error.wanted(), error.given());
}

bool Exists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

void CheckOut(const std::string& from, const std::string& dir, bool overwrite) {
  std::error_code none;
  if (std::filesystem::equivalent(from, dir, none)) {
    throw ArgumentError("output folder", "another one than the model's", dir);
  }
  if (overwrite) return;
  for (const char* name : {kConfigName, kWeightsName, kIndexName}) {
    if (!Exists(dir + "/" + name)) continue;
    throw ArgumentError(dir, "a folder without a model, or --overwrite",
                        StrCat("one with ", name));
  }
}

// The files of a directory, written to temporaries that get their names at the
// end.
class Folder {
 public:
  explicit Folder(std::string dir) : dir_(std::move(dir)) {
    train::MakeWritableFolder(dir_);
  }

  void Add(const std::string& name, std::string_view text) {
    Open(name).Write(text.data(), text.size());
  }
  AtomicFile& Open(const std::string& name) {
    files_.emplace_back(name, std::make_unique<AtomicFile>(dir_ + "/" + name));
    return *files_.back().second;
  }
  // In the order of Add, in which the configuration is the last. A model that
  // is replaced loses its configuration first and what it has besides.
  std::vector<std::string> Commit() {
    Remove(kConfigName);
    if (Exists(dir_ + "/" + kIndexName)) RemoveShards();
    Remove(kIndexName);
    std::vector<std::string> names;
    for (auto& [name, file] : files_) {
      file->Commit();
      names.push_back(name);
    }
    for (const std::string& name : CompanionFiles()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        Remove(name);
      }
    }
    return names;
  }

 private:
  // The shards that the index of the replaced model names, by their form.
  void RemoveShards() {
    std::error_code none;
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_, none)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("model-") && name.ends_with(".safetensors") &&
          name.find("-of-") != std::string::npos) {
        names.push_back(name);
      }
    }
    for (const std::string& name : names) Remove(name);
  }
  void Remove(const std::string& name) {
    std::error_code error;
    const std::string path = dir_ + "/" + name;
    std::filesystem::remove(path, error);
    if (error) throw SystemError(path, "a file to remove", error.value());
  }

  const std::string dir_;
  std::vector<std::pair<std::string, std::unique_ptr<AtomicFile>>> files_;
};

void WriteAll(const WeightSource& weights, const ConvertOptions& options,
              const std::string& dir, Folder& folder, Converted& converted) {
  WeightFileOptions file;
  file.stored = options.stored;
  file.progress = options.progress;
  converted.tensors = weights.tensors().size();
  for (const WeightTensor& tensor : weights.tensors()) {
    converted.numbers += static_cast<uint64_t>(tensor.elements());
  }
  converted.bytes = WeightFileBytes(weights, file);
  train::CheckFreeSpace(dir, converted.bytes);
  WriteWeights(weights, file, folder.Open(kWeightsName));
}

std::optional<std::string> Companion(const std::string& from,
                                     const std::string& name) {
  const std::string path = from + "/" + name;
  if (!Exists(path)) return std::nullopt;
  return Read(ReadFile(path, kMaxCompanionBytes));
}

}  // namespace

std::vector<std::string> ExportedModelTypes() {
  const std::vector<const char*> types = WritableModelTypes();
  return {types.begin(), types.end()};
}

Converted ImportModel(const std::string& from, const std::string& dir,
                      const ConvertOptions& options) {
  if (!Read(IsPublishedDirectory(from))) {
    throw FormatError(StrCat(from, "/", kConfigName),
                      "that of a published model, with a model_type",
                      "tarn's own, which needs no import");
  }
  ModelConfig config = Read(ReadModelConfig(from));
  const ModelFiles files = Read(OpenModelFiles(from, config));
  if (Tokenizer::IsIn(from)) {
    Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(from);
    if (!tokenizer.ok()) tokenizer = InFolder(from, tokenizer.error());
    config.tokenizer = Read(std::move(tokenizer)).kind();
  }
  Read(ReadGenerationConfig(from));
  CheckOut(from, dir, options.overwrite);
  Folder folder(dir);
  Converted converted;
  const std::string text =
      Read(ReadFile(from + "/" + kConfigName, kMaxConfigBytes));
  converted.model_type = PublishedTypeOf(text);
  WriteAll(*files.weights, options, dir, folder, converted);
  for (const std::string& name : CompanionFiles()) {
    std::optional<std::string> file = Companion(from, name);
    if (name == kGenerationName) {
      file = GenerationSettingsOf(text, file.value_or(""));
    }
    if (file && !file->empty()) folder.Add(name, *file);
  }
  folder.Add(kConfigName, ConfigToJson(config));
  converted.files = folder.Commit();
  return converted;
}

Converted ExportModel(const std::string& from, const std::string& dir,
                      const std::string& type, const ConvertOptions& options) {
  const ModelConfig config = Read(ReadModelConfig(from));
  const ModelFiles files = Read(OpenModelFiles(from, config));
  const PublishedForm form = [&] {
    Result<PublishedForm> made = Publish(config, files.weights, type);
    if (made.ok()) return std::move(made).Take();
    if (made.error().where().starts_with(from)) Throw(made.error());
    Throw(InFolder(from, made.error()));
  }();
  CheckOut(from, dir, options.overwrite);
  Folder folder(dir);
  Converted converted;
  converted.model_type = form.model_type;
  WriteAll(*form.weights, options, dir, folder, converted);
  for (const std::string& name : CompanionFiles()) {
    const std::optional<std::string> text = Companion(from, name);
    if (!text) continue;
    if (name == kTokenizerName) {
      const auto root = ParseStrictJson(*text, name, kMaxCompanionBytes);
      if (!root.ok()) Throw(InFolder(from, root.error()));
      if (!IsHuggingFaceForm(root.value())) {
        converted.left_out = StrCat(name, ", which is in tarn's own form (",
                                    Name(config.tokenizer), ")");
        continue;
      }
    }
    folder.Add(name, *text);
  }
  folder.Add(kConfigName, form.config);
  converted.files = folder.Commit();
  return converted;
}

}  // namespace tarn
