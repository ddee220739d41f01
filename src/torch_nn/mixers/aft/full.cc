#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "torch_nn/mixers/aft/aft.h"
#include "torch_nn/mixers/common/cached.h"
#include "torch_ops/aft/aft.h"

namespace tarn::nn {
namespace {

// Zhai et al. 2021 start the position tables small.
constexpr double kDeviation = 0.01;

// The weights of pairs of places, w = u v^T, are held as two tables under
// `inner_attention`.
class AftFull : public CachedMixer {
 public:
  AftFull(const ModelConfig& layer, MixerPlace place)
      : CachedMixer(layer, place) {
    const auto inner = register_module(
        "inner_attention", std::make_shared<torch::nn::Module>("inner"));
    const std::vector<int64_t> table = {
        KeyOf<int64_t>(layer, "max_sequence_length"),
        KeyOf<int64_t>(layer, "aft_parameterization")};
    u_ = inner->register_parameter("u", torch::randn(table) * kDeviation);
    v_ = inner->register_parameter("v", torch::randn(table) * kDeviation);
    state_form_->max_length = table[0];
  }

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    const Heads turned = Turned(heads, rotary);
    return ops::AftFull(
        turned.queries, turned.keys, turned.values,
        PositionBias(0, turned.queries.size(1), turned.keys.size(1)),
        Masks(key_mask, place_.causal, 0));
  }

  // Weights depend on places, so the rows of one length are computed at a time;
  // most often there is one length.
  torch::Tensor AttendCache(const Heads& heads, const Heads& /*all*/,
                            const torch::Tensor& added,
                            const MixerState& state) override {
    const torch::Tensor &keys = state["keys"], &values = state["values"];
    const int64_t before = keys.size(1), taken = heads.keys.size(1);
    std::vector<torch::Tensor> outs = {heads.values.slice(0, 0, 0)};
    std::vector<torch::Tensor> order = {torch::empty({0}, torch::kInt64)};
    const torch::Tensor lengths = std::get<0>(torch::_unique(state.lengths));
    for (int64_t i = 0; i < lengths.size(0); ++i) {
      const int64_t length = lengths[i].item<int64_t>();
      const torch::Tensor rows = (state.lengths == length).nonzero().squeeze(1);
      const auto pick = [&](const torch::Tensor& tensor) {
        return tensor.index_select(0, rows.to(tensor.device()));
      };
      const auto joined = [&](const torch::Tensor& old,
                              const torch::Tensor& more) {
        return torch::cat({pick(old).slice(1, before - length), pick(more)}, 1);
      };
      ops::AttentionMasks masks;
      masks.causal = true;
      masks.causal_offset = length;
      masks.key_lengths = (pick(added) + length).to(heads.keys.device());
      outs.push_back(ops::AftFull(pick(heads.queries), joined(keys, heads.keys),
                                  joined(values, heads.values),
                                  PositionBias(length, taken, length + taken),
                                  masks));
      order.push_back(rows);
    }
    const torch::Tensor back = torch::cat(order).argsort();
    return torch::cat(outs).index_select(0, back.to(heads.queries.device()));
  }

 private:
  // w_ij for i in [first, first + rows), j < columns.
  torch::Tensor PositionBias(int64_t first, int64_t rows,
                             int64_t columns) const {
    const int64_t most = u_.size(0);
    if (first + rows > most || columns > most) {
      throw ArgumentError("Mixer: x",
                          StrCat("at most max_sequence_length = ", most,
                                 " tokens for attention 'aft-full'"),
                          StrCat(std::max(first + rows, columns)));
    }
    return torch::matmul(u_.narrow(0, first, rows),
                         v_.narrow(0, 0, columns).t());
  }

  torch::Tensor u_, v_;  // parameters [max_sequence_length, parameterization]
};

}  // namespace

std::shared_ptr<Mixer> MakeAftFull(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<AftFull>(layer, place);
}

}  // namespace tarn::nn
