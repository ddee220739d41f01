// Gated units and mixtures of them, which many models have under other names.
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {

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
                PublishedTensors& from, ImportedTensors& to) {
  const int64_t experts = KeyOf<int64_t>(config, "experts");
  const int64_t width = KeyOf<int64_t>(config, "d_expert");
  const int64_t d_model = config.d_model;
  if (from.Has(theirs + "gate_up_proj")) {
    const GroupedRows both(
        from.Shaped(theirs + "gate_up_proj", {experts, 2 * width, d_model})
            .Reshaped({experts * 2 * width, d_model}),
        experts, {width, width});
    const std::vector<int64_t> shape = {experts, width, d_model};
    to.Add(own + "experts.linear1", both[0].Reshaped(shape));
    to.Add(own + "experts.linear3", both[1].Reshaped(shape));
    to.Add(own + "experts.linear2", from(theirs + "down_proj"));
    return;
  }
  const auto stack = [&](const char* mine, const char* name, int64_t out,
                         int64_t in) {
    std::vector<WeightPart> parts;
    for (int64_t e = 0; e < experts; ++e) {
      parts.push_back(
          from.Shaped(StrCat(theirs, e, ".", name, ".weight"), {out, in}));
    }
    to.Add(own + "experts." + mine,
           WeightPart::Stacked(parts).Reshaped({experts, out, in}));
  };
  stack("linear1", names.gate, width, d_model);
  if (names.up != nullptr) stack("linear3", names.up, width, d_model);
  stack("linear2", names.down, d_model, width);
}

}  // namespace tarn
