#include "runtime/model/convert.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "importers/generation_config.h"
#include "importers/publish.h"
#include "runtime/model/convert_folder.h"
#include "runtime/model/files.h"
#include "runtime/model/labels.h"
#include "text/tokenizer.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kTokenizerName = "tokenizer.json";
constexpr const char* kGenerationName = "generation_config.json";
constexpr const char* kLabelsName = "labels.json";
constexpr uint64_t kMaxCompanionBytes = 64 << 20;

void WriteAll(const WeightSource& weights, const ConvertOptions& options,
              WeightFileOptions file, const std::string& dir,
              ConvertFolder& folder, Converted& converted) {
  converted.tensors = weights.tensors().size();
  for (const WeightTensor& tensor : weights.tensors()) {
    converted.numbers += static_cast<uint64_t>(tensor.elements());
  }
  converted.bytes = WeightFileBytes(weights, file);
  const uint64_t head = WeightFileHead(weights, file).size();
  ResumableFile& to = folder.Weights(head + converted.bytes, options.step);
  file.begun = to.Begun();
  train::CheckFreeSpace(
      dir, converted.bytes - std::min(converted.bytes, file.begun));
  try {
    WriteWeights(weights, file, to);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) folder.Keep();
    throw;
  }
}

WeightFileOptions FileOptions(const ConvertOptions& options) {
  WeightFileOptions file;
  file.stored = options.stored;
  file.progress = options.progress;
  return file;
}

std::optional<std::string> Companion(const ModelPath& from,
                                     const std::string& name) {
  if (name == kTokenizerName && from.HasVocabulary()) {
    return OfModel(Tokenizer::OpenAlone(from)).ToJson();
  }
  if (!from.Has(name)) return std::nullopt;
  return OfModel(from.Read(name, kMaxCompanionBytes));
}

}  // namespace

std::vector<std::string> ExportedModelTypes() {
  const std::vector<const char*> types = WritableModelTypes();
  return {types.begin(), types.end()};
}

Converted CopyModel(const ModelPath& from, const std::string& dir,
                    const ConvertOptions& options,
                    const ChangeWeights& change) {
  ModelConfig config = OfModel(ReadModelConfig(from));
  const ModelFiles files = OfModel(OpenModelFiles(from, config));
  const bool published = OfModel(IsPublishedModel(from));
  if (published && Tokenizer::IsIn(from)) {
    Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(from);
    if (!tokenizer.ok() && !from.HasVocabulary()) {
      tokenizer = InFolder(from.path(), tokenizer.error());
    }
    config.tokenizer = OfModel(std::move(tokenizer)).kind();
  }
  OfModel(ReadGenerationConfig(from));
  const std::string text = OfModel(from.Read(kConfigName, kMaxConfigBytes));
  const ChangedWeights changed = change(files.weights, config);
  const WeightSource& weights = *changed.weights;
  const WeightFileOptions file = FileOptions(options);
  ConvertFolder folder(
      from.path(), dir,
      ConversionKey(from.path(), WeightFileHead(weights, file),
                    ConfigToJson(config), options.build + changed.key),
      options.overwrite);
  Converted converted;
  converted.model_type = published ? PublishedTypeOf(text) : "tarn";
  WriteAll(weights, options, file, dir, folder, converted);
  std::vector<std::string> names = CompanionFiles();
  if (HasLabels(config.task)) names.emplace_back(kLabelsName);
  for (const std::string& name : names) {
    std::optional<std::string> kept = Companion(from, name);
    if (name == kGenerationName && published) {
      kept = GenerationSettingsOf(text, kept.value_or(""));
    }
    if (kept && !kept->empty()) folder.Add(name, *kept);
  }
  folder.Add(kConfigName, ConfigToJson(config));
  converted.files = folder.Commit();
  return converted;
}

Converted ImportModel(const ModelPath& from, const std::string& dir,
                      const ConvertOptions& options) {
  if (!OfModel(IsPublishedModel(from))) {
    throw FormatError(from.Where(kConfigName),
                      "that of a published model, with a model_type",
                      "tarn's own, which needs no import");
  }
  return CopyModel(
      from, dir, options,
      [](std::shared_ptr<const WeightSource> weights, const ModelConfig&) {
        return ChangedWeights{std::move(weights), ""};
      });
}

Converted ExportModel(const ModelPath& from, const std::string& dir,
                      const std::string& type, const ConvertOptions& options) {
  const ModelConfig config = OfModel(ReadModelConfig(from));
  const ModelFiles files = OfModel(OpenModelFiles(from, config));
  const PublishedForm form = [&] {
    Result<PublishedForm> made = Publish(config, files.weights, type);
    if (made.ok()) return std::move(made).Take();
    if (made.error().where().starts_with(from.path())) Throw(made.error());
    Throw(InFolder(from.path(), made.error()));
  }();
  const WeightFileOptions file = FileOptions(options);
  ConvertFolder folder(
      from.path(), dir,
      ConversionKey(from.path(), WeightFileHead(*form.weights, file),
                    form.config, options.build),
      options.overwrite);
  Converted converted;
  converted.model_type = form.model_type;
  WriteAll(*form.weights, options, file, dir, folder, converted);
  for (const std::string& name : CompanionFiles()) {
    const std::optional<std::string> text = Companion(from, name);
    if (!text) continue;
    if (name == kTokenizerName) {
      const auto root = ParseStrictJson(*text, name, kMaxCompanionBytes);
      if (!root.ok()) Throw(InFolder(from.path(), root.error()));
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
