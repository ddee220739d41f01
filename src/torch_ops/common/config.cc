// torch.ops.tarn.finish_config, config_text and weight_shapes: the configuration table for
// Python, as JSON texts.
#include <torch/library.h>

#include "config/model_config.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

ModelConfig Read(const std::string& json) {
  Result<ModelConfig> config = ConfigFromPartialJson(json);
  if (!config.ok()) Throw(config.error());
  return std::move(config).value();
}

// Absent keys at their defaults, sizes derived, everything checked; all keys
// side by side.
std::string Finished(const std::string& json) {
  return WithTorchErrors([&] { return ConfigToFlatJson(Read(json)); });
}

// The same as the text of config.json.
std::string FileText(const std::string& json) {
  return WithTorchErrors([&] { return ConfigToJson(Read(json)); });
}

// {"name": [sizes], ...} in model order. Names need no escapes.
std::string Shapes(const std::string& json) {
  return WithTorchErrors([&] {
    std::string text = "{";
    for (const auto& [name, shape] : WeightShapes(Read(json))) {
      text += StrCat(text.size() > 1 ? ", " : "", "\"", name,
                     "\": ", ShapeText(shape));
    }
    return text + "}";
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("finish_config(str json) -> str", &Finished);
  m.def("config_text(str json) -> str", &FileText);
  m.def("weight_shapes(str json) -> str", &Shapes);
}

}  // namespace
}  // namespace tarn::ops
