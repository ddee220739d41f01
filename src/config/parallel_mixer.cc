#include "config/parallel_mixer.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"

namespace tarn {
namespace {

// A text for the life of the program: rows and tensors of states refer to names
// by their address. There are few of them.
const char* Kept(const std::string& text) {
  static ForkHeldMutex turn;
  static std::set<std::string> texts;
  const std::lock_guard lock(turn);
  return texts.insert(text).first->c_str();
}

// What the mixers of a layer see. Only LayerView makes them.
const std::vector<ModelConfig>& BranchesOf(const ModelConfig& layer) {
  if (layer.branches.empty()) {
    throw ArgumentError("attention", "a layer as LayerView gives it",
                        "a configuration without views of parallel mixers");
  }
  return layer.branches;
}

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes;
  for (size_t i = 0; i < BranchesOf(layer).size(); ++i) {
    const ModelConfig& branch = layer.branches[i];
    for (NamedShape& shape : Spec(branch.attention).weights(branch)) {
      shapes.push_back({BranchPrefix(i) + shape.first, shape.second});
    }
  }
  return shapes;
}

StateSpec State(const ModelConfig& layer) {
  StateSpec state;
  for (size_t i = 0; i < BranchesOf(layer).size(); ++i) {
    const ModelConfig& branch = layer.branches[i];
    for (StateTensor& tensor : Spec(branch.attention).state(branch)) {
      tensor.name = BranchTensor(i, tensor.name);
      state.push_back(std::move(tensor));
    }
  }
  return state;
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
  return Kept(StrCat(branch, ".", name));
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
  MixerSpec spec = {.name = Kept(ParallelName(branches)),
                    .family = "parallel",
                    .sections = {},
                    .can = Together(branches),
                    .weights = Weights,
                    .branches = branches};
  if (spec.can.recurrent) spec.state = State;
  return spec;
}

}  // namespace tarn
