#include "torch_nn/mixers/parallel.h"

#include <algorithm>

#include "torch_nn/mixers/registry.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

class Parallel final : public Mixer {
 public:
  Parallel(const ModelConfig& layer, MixerPlace place) : Mixer(layer, place) {
    const auto list = register_module("branches", torch::nn::ModuleList());
    for (const ModelConfig& view : layer.branches) {
      place.branch = static_cast<int64_t>(branches_.size());
      branches_.push_back({MakeMixer(view, place), view.branch_factor});
      list->push_back(branches_.back().mixer);
    }
    if (state_form_ != nullptr) SetStateForm();
  }

  torch::Tensor OutputBias() const override {
    torch::Tensor sum;
    for (const Branch& branch : branches_) {
      Add(branch.mixer->OutputBias(), branch.factor, sum);
    }
    return sum;
  }

  void Redraw(int64_t step) override {
    for (const Branch& branch : branches_) branch.mixer->Redraw(step);
  }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) override {
    torch::Tensor sum;
    for (const Branch& branch : branches_) {
      Add(branch.mixer->Unbiased(x, context, key_mask), branch.factor, sum);
    }
    return sum;
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) override {
    const torch::Tensor rows = norm == nullptr ? x : norm->forward(x);
    torch::Tensor sum;
    for (const Branch& branch : branches_) {
      Add(branch.mixer->UnbiasedPiece(rows, cut, context), branch.factor, sum);
    }
    return sum;
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) override {
    torch::Tensor sum;
    auto tensor = state.tensors().begin();
    for (const Branch& branch : branches_) {
      const auto end = tensor + static_cast<int64_t>(branch.form->slots.size());
      const MixerState before(branch.form, {tensor, end}, state.lengths);
      const auto [rows, after] =
          branch.mixer->Prefill(x, before, context, taken.lengths);
      Add(rows, branch.factor, sum);
      tensor =
          std::copy(after.tensors().begin(), after.tensors().end(), tensor);
    }
    return sum;
  }

 private:
  struct Branch {
    std::shared_ptr<Mixer> mixer;
    double factor = 1.0;
    std::shared_ptr<const StateForm> form = {};  // of its states
  };

  // sum += factor rows; nothing for an undefined tensor.
  static void Add(torch::Tensor rows, double factor, torch::Tensor& sum) {
    if (!rows.defined()) return;
    if (factor != 1.0) rows = rows * factor;
    sum = sum.defined() ? sum + rows : rows;
  }

  // The tensors of its mixers' states, some of which their modules alone know,
  // before those of the layer's feed-forward part.
  void SetStateForm() {
    const size_t own = Spec(config_.attention).state(config_).size();
    const std::vector<StateSlot> part(
        state_form_->slots.begin() + static_cast<int64_t>(own),
        state_form_->slots.end());
    state_form_->slots.clear();
    for (size_t i = 0; i < branches_.size(); ++i) {
      branches_[i].form = branches_[i].mixer->state_form();
      for (StateSlot slot : branches_[i].form->slots) {
        slot.spec.name = BranchTensor(i, slot.spec.name);
        state_form_->slots.push_back(slot);
      }
      state_form_->max_length =
          std::min(state_form_->max_length, branches_[i].form->max_length);
    }
    // Caches of different lengths: each mixer trims those it has.
    state_form_->window = kMaxLength;
    state_form_->slots.insert(state_form_->slots.end(), part.begin(),
                              part.end());
  }

  std::vector<Branch> branches_;
};

}  // namespace

std::shared_ptr<Mixer> MakeParallelMixer(const ModelConfig& layer,
                                         MixerPlace place) {
  return std::make_shared<Parallel>(layer, place);
}

}  // namespace tarn::nn
