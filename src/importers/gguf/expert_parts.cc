#include "importers/gguf/expert_parts.h"

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"

namespace tarn {

void MoveGgufExperts(const ModelConfig& view, const std::string& theirs,
                     const GgufExpertNames& names, const std::string& own,
                     GgufTensors& tensors) {
  const int64_t experts = KeyOf<int64_t>(view, "experts");
  const int64_t width = KeyOf<int64_t>(view, "d_expert");
  const auto move = [&](const char* published, const char* name, int64_t rows,
                        int64_t columns) {
    if (published == nullptr) return;
    const std::vector<WeightPart> parts =
        GgufExpertParts(tensors, own + name, experts, rows, columns);
    for (size_t e = 0; e < parts.size(); ++e) {
      tensors.Add(StrCat(theirs, e, ".", published, ".weight"), parts[e]);
    }
  };
  move(names.gate, "ffn_gate_exps.weight", width, view.d_model);
  move(names.up, "ffn_up_exps.weight", width, view.d_model);
  move(names.down, "ffn_down_exps.weight", view.d_model, width);
}

}  // namespace tarn
