#include "importers/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "importers/directory.h"

namespace tarn {
namespace {

constexpr uint64_t kMostGenerationBytes = uint64_t{1} << 20;

// Of eos_token_id, "key" for messages. Throws FormatError.
std::vector<int32_t> StopTokensOf(const nlohmann::json& value,
                                  const std::string& key) {
  const auto refuse = [&](const nlohmann::json& given) {
    throw FormatError(
        key,
        StrCat("an id, or a list of at most ", kMaxPublishedStopTokens, " ids"),
        JsonGiven(given));
  };
  std::vector<int32_t> tokens;
  const auto add = [&](const nlohmann::json& one) {
    const std::optional<int64_t> id =
        one.is_number() ? JsonInteger(one) : std::nullopt;
    // Files for models without such a token write -1.
    if (!id || *id < -1 || *id > INT32_MAX) refuse(one);
    if (*id >= 0) tokens.push_back(static_cast<int32_t>(*id));
  };
  if (value.is_array()) {
    if (value.size() > kMaxPublishedStopTokens) {
      throw FormatError(key,
                        StrCat("at most ", kMaxPublishedStopTokens, " ids"),
                        StrCat(value.size()));
    }
    for (const nlohmann::json& one : value) add(one);
  } else {
    add(value);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

// A number of the file in [least, most]; absent or null: `value`.
double NumberOf(const nlohmann::json& root, const std::string& where,
                const char* key, double least, double most, double value) {
  const nlohmann::json given = root.value(key, nlohmann::json());
  if (given.is_null()) return value;
  const double number = given.is_number() ? given.get<double>() : least - 1;
  if (number < least || number > most) {
    throw FormatError(StrCat(where, ": ", key),
                      StrCat("a number from ", least, " to ", most),
                      JsonGiven(given));
  }
  return number;
}

std::optional<PublishedSampling> SamplingOf(const nlohmann::json& root,
                                            const std::string& where) {
  const nlohmann::json sample = root.value("do_sample", nlohmann::json());
  if (!sample.is_null() && !sample.is_boolean()) {
    throw FormatError(StrCat(where, ": do_sample"), "true or false",
                      JsonGiven(sample));
  }
  if (sample.is_null() || !sample.get<bool>()) return std::nullopt;
  PublishedSampling sampling;
  sampling.temperature =
      NumberOf(root, where, "temperature", 0, 100, sampling.temperature);
  sampling.min_p = NumberOf(root, where, "min_p", 0, 1, sampling.min_p);
  sampling.top_p = NumberOf(root, where, "top_p", 0, 1, sampling.top_p);
  sampling.typical_p =
      NumberOf(root, where, "typical_p", 0, 1, sampling.typical_p);
  sampling.repetition_penalty = NumberOf(root, where, "repetition_penalty", 0,
                                         10, sampling.repetition_penalty);
  constexpr double kLeastPenalty = 1e-30;  // quotients of logits stay finite
  for (const auto& [key, small] :
       {std::pair("top_p", sampling.top_p == 0),
        std::pair("typical_p", sampling.typical_p == 0),
        std::pair("repetition_penalty",
                  sampling.repetition_penalty < kLeastPenalty)}) {
    if (!small) continue;
    throw FormatError(StrCat(where, ": ", key), "a number above 0", "0");
  }
  const nlohmann::json top_k = root.value("top_k", nlohmann::json());
  if (top_k.is_null()) return sampling;
  const std::optional<int64_t> count =
      top_k.is_number() ? JsonInteger(top_k) : std::nullopt;
  if (!count || *count < 0) {
    throw FormatError(StrCat(where, ": top_k"), "an integer from 0",
                      JsonGiven(top_k));
  }
  sampling.top_k = *count;
  return sampling;
}

PublishedGeneration ReadFiles(const TextFiles& files) {
  PublishedGeneration generation;
  nlohmann::json stop;
  const std::string name = "generation_config.json";
  if (files.Has(name)) {
    const std::string path = files.Where(name);
    const std::string text = files.Read(name, kMostGenerationBytes).Take();
    const nlohmann::json root =
        ParseStrictJson(text, path, kMostGenerationBytes).Take();
    if (!root.is_object()) {
      throw FormatError(path, "an object", JsonGiven(root));
    }
    generation.sampling = SamplingOf(root, path);
    stop = root.value("eos_token_id", stop);
    if (!stop.is_null()) {
      generation.stop_tokens = StopTokensOf(stop, path + ": eos_token_id");
      return generation;
    }
  }
  const std::string config = files.Where("config.json");
  const std::string json =
      files.Read("config.json", kMostGenerationBytes).Take();
  if (!IsPublishedConfig(json)) return generation;
  stop = PublishedKey(json, "eos_token_id", config).Take();
  if (!stop.is_null()) {
    generation.stop_tokens = StopTokensOf(stop, config + ": eos_token_id");
  }
  return generation;
}

}  // namespace

Result<PublishedGeneration> ReadGenerationConfig(const ModelPath& model) {
  try {
    return ReadFiles(model);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace tarn
