#include "torch_nn/state/attention_state.h"

#include <array>
#include <limits>

#include "core/error.h"

namespace tarn::nn {
namespace {

using Member = torch::Tensor AttentionState::*;
constexpr std::array<Member, 10> kMembers = {
    &AttentionState::lengths,  &AttentionState::S,    &AttentionState::z,
    &AttentionState::extra,    &AttentionState::keys, &AttentionState::values,
    &AttentionState::key_mask, &AttentionState::m,    &AttentionState::a,
    &AttentionState::b};

}  // namespace

AttentionState AttentionState::IndexSelect(const torch::Tensor& rows) const {
  if (rows.dim() != 1 || rows.scalar_type() != torch::kInt64) {
    throw ShapeError("AttentionState: rows", "[rows] int64",
                     ShapeText(rows.sizes().vec()));
  }
  if (rows.numel() > 0) {
    const auto [least, largest] = torch::aminmax(rows);
    if (least.item<int64_t>() < 0 || largest.item<int64_t>() >= batch()) {
      throw ArgumentError(
          "AttentionState: rows", StrCat("rows in [0, ", batch(), ")"),
          StrCat(least.item<int64_t>(), " to ", largest.item<int64_t>()));
    }
  }
  AttentionState picked = *this;
  for (const Member member : kMembers) {
    torch::Tensor& tensor = picked.*member;
    if (tensor.defined()) {
      tensor = tensor.index_select(0, rows.to(tensor.device()));
    }
  }
  return picked;
}

AttentionState AttentionState::Reset(const torch::Tensor& which) const {
  if (which.dim() != 1 || which.scalar_type() != torch::kBool ||
      which.size(0) != batch()) {
    throw ShapeError("AttentionState: which", StrCat("[", batch(), "] bool"),
                     ShapeText(which.sizes().vec()));
  }
  AttentionState state = *this;
  for (const Member member : kMembers) {
    torch::Tensor& tensor = state.*member;
    if (!tensor.defined()) continue;
    std::vector<int64_t> rows(static_cast<size_t>(tensor.dim()), 1);
    rows[0] = batch();
    // A running maximum over nothing is -infinity, every sum is 0.
    const double first = member == &AttentionState::m
                             ? -std::numeric_limits<double>::infinity()
                             : 0.0;
    tensor = tensor.masked_fill(which.to(tensor.device()).view(rows), first);
  }
  return state;
}

int64_t AttentionState::bytes() const {
  int64_t total = 0;
  for (const Member member : kMembers) {
    if ((this->*member).defined()) {
      total += static_cast<int64_t>((this->*member).nbytes());
    }
  }
  return total;
}

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

void CheckStateBatch(const char* where, const StackState& state,
                     const torch::Tensor& tokens) {
  if (!state.layers.empty() && state.batch() == tokens.size(0)) return;
  throw ArgumentError(StrCat(where, ": state"),
                      StrCat("a state of ", tokens.size(0), " sequences"),
                      state.layers.empty() ? "none" : StrCat(state.batch()));
}

torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         int64_t batch, int64_t size) {
  if (!lengths.defined()) return {};
  const std::string name = StrCat(where, ": lengths");
  if (lengths.dim() != 1 || lengths.size(0) != batch) {
    throw ShapeError(name, StrCat("[", batch, "]"),
                     ShapeText(lengths.sizes().vec()));
  }
  if (lengths.scalar_type() != torch::kInt64) {
    throw DTypeError(name, "int64", c10::toString(lengths.scalar_type()));
  }
  if (batch > 0) {
    const auto [least, largest] = torch::aminmax(lengths);
    const int64_t low = least.item<int64_t>(), high = largest.item<int64_t>();
    if (low < 0 || high > size) {
      throw ArgumentError(name, StrCat("lengths in [0, ", size, "]"),
                          StrCat(low < 0 ? low : high));
    }
  }
  return torch::arange(size, lengths.options()).unsqueeze(0) <
         lengths.unsqueeze(1);
}

}  // namespace tarn::nn
