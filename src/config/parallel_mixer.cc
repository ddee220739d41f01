// A layer with parallel mixers: all read the same rows, and what they give is
// added, as in Falcon-H1 (arXiv 2507.22448). A configuration names them with
// '+' between: "mamba2+full".

#include <algorithm>
#include <string>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// What the mixers of a layer see. Only LayerView makes them.
const std::vector<ModelConfig>& ViewsOf(const ModelConfig& layer) {
  if (layer.branches.empty()) {
    throw ArgumentError("attention", "a layer as LayerView gives it",
                        "a configuration without views of parallel mixers");
  }
  return layer.branches;
}

std::vector<NamedShape> ParallelWeights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes;
  for (size_t i = 0; i < ViewsOf(layer).size(); ++i) {
    const ModelConfig& branch = layer.branches[i];
    for (NamedShape& shape : Spec(branch.attention).weights(branch)) {
      shapes.push_back({BranchPrefix(i) + shape.first, shape.second});
    }
  }
  return shapes;
}

StateSpec ParallelState(const ModelConfig& layer) {
  StateSpec state;
  for (size_t i = 0; i < ViewsOf(layer).size(); ++i) {
    const ModelConfig& branch = layer.branches[i];
    for (StateTensor& tensor : Spec(branch.attention).state(branch)) {
      tensor.name = BranchTensor(i, tensor.name);
      state.push_back(std::move(tensor));
    }
  }
  return state;
}

std::vector<NamedPrecision> ParallelPrecise(
    const std::vector<AttentionKind>& branches) {
  std::vector<NamedPrecision> all;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (const auto& [name, precision] : Spec(branches[i]).precise) {
      all.emplace_back(BranchPrefix(i) + name, precision);
    }
  }
  return all;
}

MixerCapabilities Together(const std::vector<AttentionKind>& branches) {
  MixerCapabilities can = {.recurrent = true, .rotary = false};
  for (const AttentionKind kind : branches) {
    const MixerCapabilities& one = Spec(kind).can;
    can.causal &= one.causal;
    can.bidirectional &= one.bidirectional;
    can.recurrent &= one.recurrent;
    can.dropout |= one.dropout;
    can.pairs |= one.pairs;
    can.rotary |= one.rotary;
  }
  return can;
}

}  // namespace

std::string BranchPrefix(size_t branch) {
  return StrCat("branches.", branch, ".");
}

const char* BranchTensor(size_t branch, std::string_view name) {
  return KeptText(StrCat(branch, ".", name));
}

std::vector<ModelConfig> MixerViews(const ModelConfig& layer) {
  if (layer.branches.empty()) return {layer};
  return layer.branches;
}

std::string ParallelName(const std::vector<AttentionKind>& branches) {
  std::string name;
  for (const AttentionKind kind : branches) {
    name += (name.empty() ? "" : "+") + std::string(Spec(kind).name);
  }
  return name;
}

MixerSpec ParallelMixer(const std::vector<AttentionKind>& branches) {
  MixerSpec spec = {.name = KeptText(ParallelName(branches)),
                    .family = "parallel",
                    .sections = {},
                    .can = Together(branches),
                    .weights = ParallelWeights,
                    .precise = ParallelPrecise(branches),
                    .branches = branches};
  if (spec.can.recurrent) spec.state = ParallelState;
  return spec;
}

}  // namespace tarn
