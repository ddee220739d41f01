#include "runtime/session/sampler_json.h"

#include <charconv>
#include <cmath>
#include <set>
#include <string>

#include "core/text.h"
#include "runtime/sampling/option_table.h"

namespace tarn {
namespace {

// As text: JSON's numbers end at 2^53 for many readers.
uint64_t Word(const JsonObject& object, const char* key) {
  const std::string text = object.Text(key);
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw FormatError(object.At(key), "an integer of 64 bits", Quoted(text));
  }
  return value;
}

}  // namespace

nlohmann::ordered_json SamplerToJson(const SamplerOptions& options) {
  nlohmann::ordered_json json;
  for (const SamplerOption& option : SamplerOptionTable()) {
    json[std::string(option.name)] = std::visit(
        [](const auto& held) { return nlohmann::ordered_json(held); },
        ValueOf(option, options));
  }
  // JSON has no infinities: a temperature below 0 is as good as 0.
  if (!std::isfinite(options.temperature)) json["temperature"] = 0.0;
  json["seed"] = StrCat(options.seed);
  json["stream"] = StrCat(options.stream);
  return json;
}

SamplerOptions SamplerFromJson(const JsonObject& object) {
  SamplerOptions options;
  std::set<std::string> known{"seed", "stream"};
  for (const SamplerOption& option : SamplerOptionTable()) {
    const std::string name(option.name);
    known.insert(name);
    const nlohmann::json& value = object.Value(name);
    SamplerValue given;
    if (value.is_array()) {
      std::vector<std::string> words;
      for (const nlohmann::json& word : value) {
        words.push_back(word.is_string() ? word.get<std::string>() : "");
      }
      given = std::move(words);
    } else if (value.is_number_integer()) {
      given = object.Integer(name, INT64_MIN, INT64_MAX);
    } else {
      given = object.FindReal(name, -1e300, 1e300).value();
    }
    SetSamplerOption(options, name, given);
  }
  object.WantKeys(known);
  options.seed = Word(object, "seed");
  options.stream = Word(object, "stream");
  CheckSampler(options);
  return options;
}

}  // namespace tarn
