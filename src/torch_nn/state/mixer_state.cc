#include "torch_nn/state/mixer_state.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {
namespace {

torch::ScalarType TypeOf(const StateSlot& slot, torch::ScalarType weights) {
  if (slot.mask) return torch::kBool;
  if (slot.spec.grows) return weights;
  return weights == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// [B, 1, ...]: one entry per sequence, with as many axes as the tensor.
torch::Tensor PerSequence(const torch::Tensor& which,
                          const torch::Tensor& tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[0] = which.size(0);
  return which.to(tensor.device()).view(shape);
}

}  // namespace

MixerState::MixerState(std::shared_ptr<const StateForm> form, int64_t batch,
                       const torch::TensorOptions& like)
    : lengths(torch::zeros({batch}, torch::kInt64)), form_(std::move(form)) {
  for (const StateSlot& slot : form_->slots) {
    if (slot.mask) {
      tensors_.emplace_back();
      continue;
    }
    std::vector<int64_t> shape = {batch};
    if (slot.spec.grows) shape.push_back(0);
    shape.insert(shape.end(), slot.spec.shape.begin(), slot.spec.shape.end());
    tensors_.push_back(torch::full(
        shape, slot.spec.initial,
        like.dtype(TypeOf(slot, c10::typeMetaToScalarType(like.dtype())))));
  }
}

int64_t MixerState::Find(std::string_view name) const {
  for (size_t i = 0; i < form_->slots.size(); ++i) {
    if (form_->slots[i].spec.name == name) return static_cast<int64_t>(i);
  }
  return -1;
}

size_t MixerState::At(std::string_view name) const {
  const int64_t place = Find(name);
  if (place >= 0) return static_cast<size_t>(place);
  std::string names;
  for (const StateSlot& slot : form_->slots) {
    names += (names.empty() ? "" : ", ") + std::string(slot.spec.name);
  }
  throw ArgumentError("MixerState: name",
                      names.empty() ? "none, as the state is empty" : names,
                      Quoted(name));
}

const torch::Tensor& MixerState::operator[](std::string_view name) const {
  return tensors_[At(name)];
}

torch::Tensor& MixerState::operator[](std::string_view name) {
  return tensors_[At(name)];
}

MixerState MixerState::IndexSelect(const torch::Tensor& rows) const {
  if (rows.dim() != 1 || rows.scalar_type() != torch::kInt64) {
    throw ShapeError("MixerState: rows", "[rows] int64",
                     ShapeText(rows.sizes().vec()));
  }
  if (rows.numel() > 0) {
    const auto [least, largest] = torch::aminmax(rows);
    if (least.item<int64_t>() < 0 || largest.item<int64_t>() >= batch()) {
      throw ArgumentError(
          "MixerState: rows", StrCat("rows in [0, ", batch(), ")"),
          StrCat(least.item<int64_t>(), " to ", largest.item<int64_t>()));
    }
  }
  MixerState picked = *this;
  picked.lengths = lengths.index_select(0, rows.to(lengths.device()));
  for (torch::Tensor& tensor : picked.tensors_) {
    if (!tensor.defined()) continue;
    tensor = tensor.index_select(0, rows.to(tensor.device()));
  }
  return picked;
}

MixerState MixerState::Reset(const torch::Tensor& which) const {
  if (which.dim() != 1 || which.scalar_type() != torch::kBool ||
      which.size(0) != batch()) {
    throw ShapeError("MixerState: which", StrCat("[", batch(), "] bool"),
                     ShapeText(which.sizes().vec()));
  }
  MixerState state = *this;
  state.lengths = lengths.masked_fill(which.to(lengths.device()), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    torch::Tensor& tensor = state.tensors_[i];
    if (!tensor.defined()) continue;
    tensor = tensor.masked_fill(PerSequence(which, tensor),
                                form_->slots[i].spec.initial);
  }
  return state;
}

int64_t MixerState::bytes() const {
  size_t total = lengths.defined() ? lengths.nbytes() : 0;
  for (const torch::Tensor& tensor : tensors_) {
    if (tensor.defined()) total += tensor.nbytes();
  }
  return static_cast<int64_t>(total);
}

bool MixerState::operator==(const MixerState& other) const {
  const auto same = [](const torch::Tensor& a, const torch::Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() == b.defined();
    return a.scalar_type() == b.scalar_type() && torch::equal(a, b);
  };
  if (form_->kind != other.form_->kind || !same(lengths, other.lengths) ||
      tensors_.size() != other.tensors_.size()) {
    return false;
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string_view name = form_->slots[i].spec.name;
    if (name != other.form_->slots[i].spec.name ||
        !same(tensors_[i], other.tensors_[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace tarn::nn
