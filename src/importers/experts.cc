// Parts that many models have under other names: layers of two types, gated
// units and mixtures of them.
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {

void ReadHybridLayers(PublishedConfig& from, ModelConfig& config,
                      const char* recurrent,
                      const std::function<bool(int64_t layer)>& full) {
  const std::vector<std::string> types =
      from.Words("layer_types", config.n_layers);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (types.empty()) {
      config.layers.push_back({MixerKind(full(i) ? "full" : recurrent), {}});
      continue;
    }
    const std::string& type = types[static_cast<size_t>(i)];
    if (type != "linear_attention" && type != "full_attention") {
      from.Refuse("layer_types", "'linear_attention' or 'full_attention'",
                  Quoted(type));
    }
    config.layers.push_back(
        {MixerKind(type == "full_attention" ? "full" : recurrent), {}});
  }
}

WeightPart Times(const WeightPart& part, float factor) {
  return factor == 1.0f ? part : part.Scaled(factor);
}

void AddGatedUnit(const std::string& own, const std::string& theirs,
                  const GatedUnitNames& names, PublishedTensors& from,
                  ImportedTensors& to) {
  to.AddLinear(from, own + "linear1", theirs + names.gate);
  to.AddLinear(from, own + "linear2", theirs + names.down);
  to.AddLinear(from, own + "linear3", theirs + names.up);
}

void AddExperts(const ModelConfig& config, const std::string& own,
                const std::string& theirs, const GatedUnitNames& names,
                PublishedTensors& from, ImportedTensors& to, float in_factor,
                float out_factor) {
  const int64_t experts = KeyOf<int64_t>(config, "experts");
  const int64_t width = KeyOf<int64_t>(config, "d_expert");
  const int64_t d_model = config.d_model;
  if (from.Has(theirs + "gate_up_proj")) {
    const GroupedRows both(
        from(theirs + "gate_up_proj", {experts, 2 * width, d_model})
            .Reshaped({experts * 2 * width, d_model}),
        experts, {width, width});
    const std::vector<int64_t> shape = {experts, width, d_model};
    to.Add(own + "experts.linear1", Times(both[0], in_factor).Reshaped(shape));
    to.Add(own + "experts.linear3", Times(both[1], in_factor).Reshaped(shape));
    to.Add(own + "experts.linear2",
           Times(from(theirs + "down_proj"), out_factor));
    return;
  }
  const auto stack = [&](const char* mine, const char* name, int64_t out,
                         int64_t in, float factor) {
    std::vector<WeightPart> parts;
    for (int64_t e = 0; e < experts; ++e) {
      parts.push_back(from(StrCat(theirs, e, ".", name, ".weight"), {out, in}));
    }
    to.Add(
        own + "experts." + mine,
        Times(WeightPart::Stacked(parts), factor).Reshaped({experts, out, in}));
  };
  stack("linear1", names.gate, width, d_model, in_factor);
  if (names.up != nullptr) {
    stack("linear3", names.up, width, d_model, in_factor);
  }
  stack("linear2", names.down, d_model, width, out_factor);
}

}  // namespace tarn
