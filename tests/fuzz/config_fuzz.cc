// config.json: tarn's own, one written by hand, and those of published models.
#include "config/model_config.h"
#include "fuzz/fuzz_input.h"
#include "importers/directory.h"

namespace tarn::fuzz {
namespace {

// A configuration that was read is a finished one: what is written of it is the
// same configuration.
void UseConfig(const Result<ModelConfig>& read) {
  if (!read.ok()) return CheckRefusal(read.error());
  const ModelConfig& config = read.value();
  const std::string json = ConfigToJson(config);
  const Result<ModelConfig> again = ConfigFromJson(json);
  Require(again.ok(), "a configuration that cannot be read again");
  Require(ConfigToJson(again.value()) == json, "another one is read again");
  ConfigToFlatJson(config);
  ReadKeysToJson(config);
  WeightShapes(config);
  Require(ParameterCount(config) >= 0, "fewer numbers than none");
  ++Accepted();
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::string_view json = fuzz::TextOf(data, size);
  fuzz::Try([&] { fuzz::UseConfig(ConfigFromJson(json)); });
  fuzz::Try([&] { fuzz::UseConfig(ConfigFromPartialJson(json)); });
  if (IsPublishedConfig(json)) {
    fuzz::Try([&] { fuzz::UseConfig(ImportConfig(json, "config.json")); });
  }
  fuzz::Try([&] { GenerationSettingsOf(json, std::string(json)); });
  return 0;
}
