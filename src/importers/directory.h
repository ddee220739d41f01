// What the rest of the program asks of published directories, and of model
// directories whatever their form.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "importers/model_files.h"
#include "weights/weight_source.h"

namespace tarn {

/// Whether a config.json is that of a published model: it has a `model_type`.
/// False for texts that are no JSON objects.
bool IsPublishedConfig(std::string_view json);

/// Its `model_type`, empty where it has none.
std::string PublishedTypeOf(std::string_view json);

/// The text of a generation_config.json for a model whose own config.json no
/// longer names tokens: `file`, the published one (empty: none), with the ids
/// of `json`, the published config.json, that decide where a text ends. Empty:
/// neither has any.
std::string GenerationSettingsOf(std::string_view json,
                                 const std::string& file);

/// The finished configuration. FormatError in one line for a type that is not
/// in the table, for unknown keys, and for values that tarn cannot run. where:
/// path of the file, for messages. Thread-safe; O(text).
Result<ModelConfig> ImportConfig(std::string_view json,
                                 const std::string& where);

/// The weights under tarn's names. Nothing is copied. FormatError for tensors
/// that are absent or that no part of the model reads. config: of ImportConfig
/// for the same text.
Result<std::shared_ptr<const WeightSource>> ImportWeights(
    std::string_view json, const ModelConfig& config,
    std::shared_ptr<const WeightSource> source);

/// The value of a key that says nothing about the function, such as
/// eos_token_id: of the file, or else of its text_config; null where both lack
/// it.
Result<nlohmann::json> PublishedKey(std::string_view json, const char* key,
                                    const std::string& where);

constexpr uint64_t kMaxConfigBytes = 1 << 20;  // of config.json

/// The model's config.json, finished: tarn's own, or that of a published model,
/// whose tokens are ids where there is no tokenizer. FormatError or IoError in
/// one line. O(file).
Result<ModelConfig> ReadModelConfig(const ModelPath& model);

/// The model's weights (ModelPath::Weights) under the names of `config`, which
/// a published model's get from its importer.
Result<std::shared_ptr<const WeightSource>> OpenNamedWeights(
    const ModelPath& model, const ModelConfig& config, bool use_mmap = true);

/// Whether the model's config.json is that of a published one. IoError where it
/// cannot be read.
Result<bool> IsPublishedModel(const ModelPath& model);

/// Files that go with a model's weights: of tokenizers, chat templates and
/// generation settings.
std::vector<std::string> CompanionFiles();

/// The same error with the file's folder in front.
Error InFolder(const std::string& dir, const Error& error);

/// What a model has in place of an extra prediction head that can be run, for
/// messages: "none", or why its own cannot.
std::string WhyNoMtp(const ModelPath& model);
/// The tensors of a source without those of the head (kMtpPrefix).
std::shared_ptr<const WeightSource> WithoutMtp(
    std::shared_ptr<const WeightSource> source);

/// The types of the table, in its order.
std::vector<const char*> PublishedModelTypes();

}  // namespace tarn
