#include "torch_nn/state/stack_state.h"

#include "core/error.h"
#include "core/hash.h"

namespace tarn::nn {
namespace {

uint64_t ExtendWithTensor(uint64_t hash, const std::string& name,
                          const torch::Tensor& tensor) {
  if (!tensor.defined()) return hash;
  const torch::Tensor dense = tensor.detach().to(torch::kCPU).contiguous();
  return ExtendHash(
      ExtendHash(hash, name),
      {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

}  // namespace

StackState StackState::IndexSelect(const torch::Tensor& rows) const {
  StackState picked;
  for (const auto& layer : layers) {
    picked.layers.push_back(layer.IndexSelect(rows));
  }
  for (const auto& memory : memories) {
    picked.memories.push_back(memory.IndexSelect(rows));
  }
  return picked;
}

StackState StackState::Reset(const torch::Tensor& which) const {
  StackState state = *this;
  for (auto& layer : state.layers) layer = layer.Reset(which);
  return state;
}

int64_t StackState::bytes() const {
  int64_t total = 0;
  for (const auto& layer : layers) total += layer.bytes();
  for (const auto& memory : memories) total += memory.bytes();
  return total;
}

uint64_t HashState(const StackState& state, uint64_t seed) {
  uint64_t hash = seed;
  ForEachPart(state, [&](const std::string& where, const MixerState& part) {
    hash = ExtendWithTensor(hash, where + ".lengths", part.lengths);
    for (size_t i = 0; i < part.tensors().size(); ++i) {
      hash = ExtendWithTensor(
          hash, StrCat(where, ".", part.form().slots[i].spec.name),
          part.tensors()[i]);
    }
  });
  return hash;
}

void CheckStateBatch(const char* where, const StackState& state,
                     const torch::Tensor& tokens) {
  if (!state.layers.empty() && state.batch() == tokens.size(0)) return;
  throw ArgumentError(StrCat(where, ": state"),
                      StrCat("a state of ", tokens.size(0), " sequences"),
                      state.layers.empty() ? "none" : StrCat(state.batch()));
}

}  // namespace tarn::nn
