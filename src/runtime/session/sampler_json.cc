#include "runtime/session/sampler_json.h"

#include <charconv>
#include <string>

#include "core/text.h"

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
  return {{"temperature", options.temperature},
          {"top_k", options.top_k},
          {"top_p", options.top_p},
          {"min_p", options.min_p},
          {"seed", StrCat(options.seed)},
          {"stream", StrCat(options.stream)}};
}

SamplerOptions SamplerFromJson(const JsonObject& object) {
  object.WantKeys({"temperature", "top_k", "top_p", "min_p", "seed", "stream"});
  SamplerOptions options;
  options.temperature = object.FindReal("temperature", -1e300, 100).value();
  options.top_k = object.Integer("top_k", 0, INT64_MAX);
  options.top_p = object.FindReal("top_p", 0, 1).value();
  options.min_p = object.FindReal("min_p", 0, 1).value();
  options.seed = Word(object, "seed");
  options.stream = Word(object, "stream");
  CheckSampler(options);
  return options;
}

}  // namespace tarn
