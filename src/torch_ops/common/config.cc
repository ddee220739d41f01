// torch.ops.tarn.finish_config, config_text, weight_shapes and the tables they
// rest on (config/tables.h), for Python, as JSON texts; and check_json, so that
// Python refuses the files that the runtime refuses.
#include <torch/library.h>

#include "config/declared_mixer.h"
#include "config/model_config.h"
#include "config/tables.h"
#include "core/json.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

ModelConfig Read(const std::string& json) {
  Result<ModelConfig> config = ConfigFromPartialJson(json);
  if (!config.ok()) Throw(config.error());
  return std::move(config).value();
}

// The config with absent keys at their defaults, sizes derived and everything
// checked; all keys in one flat object.
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

std::string LayerStates(const std::string& json) {
  return WithTorchErrors([&] { return StateTable(Read(json)); });
}

std::string View(const std::string& json, int64_t layer) {
  return WithTorchErrors([&] {
    if (layer < 0) {
      throw ArgumentError("layer_view: index", "0 or more", StrCat(layer));
    }
    return LayerViewText(Read(json), layer);
  });
}

void AddMixer(const std::string& json) {
  WithTorchErrors([&] {
    RegisterDeclaredMixer(json);
    return 0;
  });
}

// text: [n] uint8 on the CPU.
void CheckJson(const at::Tensor& text, const std::string& where) {
  WithTorchErrors([&] {
    constexpr uint64_t kMaxBytes = 100'000'000;  // a header of safetensors
    const at::Tensor bytes = text.contiguous();
    const std::string_view view(
        static_cast<const char*>(bytes.const_data_ptr()),
        static_cast<size_t>(bytes.numel()));
    const auto parsed = ParseStrictJson(view, where, kMaxBytes);
    if (!parsed.ok()) Throw(parsed.error());
    return 0;
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("check_json(Tensor text, str where) -> ()", &CheckJson);
  m.def("finish_config(str json) -> str", &Finished);
  m.def("config_text(str json) -> str", &FileText);
  m.def("weight_shapes(str json) -> str", &Shapes);
  m.def("feature_map_table() -> str", &FeatureMapTable);
  m.def("config_fields() -> str", &ConfigFieldTable);
  m.def("mixer_table() -> str", &MixerTable);
  m.def("register_mixer(str json) -> ()", &AddMixer);
  m.def("layer_states(str json) -> str", &LayerStates);
  m.def("layer_view(str json, int index) -> str", &View);
}

}  // namespace
}  // namespace tarn::ops
