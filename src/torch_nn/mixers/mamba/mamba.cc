#include "torch_nn/mixers/mamba/mamba.h"

#include "mixers/mamba/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/common/state_maps.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/state/lengths.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"
#include "torch_ops/selective_scan/selective_scan.h"

namespace tarn::nn {
namespace {

// What the scan reads of the rows [B, T, ...] of a call.
struct ScanRows {
  torch::Tensor inputs, steps;  // u, dt [B, T, C]
  torch::Tensor keys, queries;  // [B, T, N]
  torch::Tensor gate;           // z [B, T, C]
};

// The state is S [B, C, N] and, after a convolution, the rows [B, W - 1, C]
// that it still reads: of constant size. O(T) time.
class Mamba : public Mixer {
 public:
  Mamba(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place), s_(MambaSizesOf(layer)) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns,
                            bool bias = false) {
      return register_module(
          name, torch::nn::Linear(
                    torch::nn::LinearOptions(columns, rows).bias(bias)));
    };
    value_ = linear("value_projection", s_.channels, s_.d_model, s_.in_bias);
    gate_ = linear("gate_projection", s_.channels, s_.d_model, s_.in_bias);
    if (s_.width > 0) {
      convolution_ = ConvolutionFilters(*this, s_.channels, s_.width,
                                        /*with_bias=*/true);
    }
    steps_down_ = linear("decay_down_projection", s_.rank, s_.channels);
    key_ = linear("key_projection", s_.states, s_.channels);
    query_ = linear("query_projection", s_.states, s_.channels);
    if (s_.selection_norm) {
      steps_norm_ = RegisterWeight("decay_down_norm", s_.rank);
      key_norm_ = RegisterWeight("key_norm", s_.states);
      query_norm_ = RegisterWeight("query_norm", s_.states);
    }
    steps_up_ = linear("decay_up_projection", s_.channels, s_.rank);
    dt_bias_ = register_parameter("dt_bias", DrawStepBias(s_.channels));
    // A = -1, ..., -N for every channel (section 3.6: S4D-Real).
    A_log_ = register_parameter("A_log", torch::arange(1, s_.states + 1)
                                             .to(torch::kFloat)
                                             .log()
                                             .repeat({s_.channels, 1}));
    D_ = register_parameter("D", torch::ones({s_.channels}));
    out_ = linear("out_projection", s_.d_model, s_.channels, s_.out_bias);
  }

  torch::Tensor OutputWeight() const override { return out_->weight; }
  torch::Tensor OutputBias() const override { return out_->bias; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext&,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext&,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, key_mask);
  }

  // A piece maps the state before it to exp(A sum(dt)) S + own.
  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext&, const NormLayer* norm) override {
    const auto [values, gate] = Project(x, norm, {});
    torch::Tensor window;
    if (s_.width > 0) window = WindowBefore(values, s_.width, cut);
    const ScanRows rows = Select(values, gate, {}, {}, window);
    const torch::Tensor own =
        std::get<1>(Scan(rows, {}, {}, /*return_state=*/true)).unsqueeze(-1);
    const torch::Tensor map =
        (WideRows(rows.steps).sum(1).unsqueeze(-1) * Rates()).exp();
    const auto earlier = cut.Earlier(
        {own, map}, {torch::zeros_like(own), torch::zeros_like(map)});
    const torch::Tensor before = StateAfter(earlier).squeeze(-1);
    return Gated(rows, std::get<0>(Scan(rows, {}, before, false)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    const auto [values, gate] = Project(x, nullptr, {});
    torch::Tensor window;
    if (s_.width > 0) window = state["window"];
    const ScanRows rows = Select(values, gate, {}, taken.lengths, window);
    const auto [out, last, _] =
        Scan(rows, taken.lengths, state["S"], /*return_state=*/true);
    state["S"] = last;
    if (s_.width > 0) state["window"] = window;
    return Gated(rows, out);
  }

 private:
  torch::Tensor RegisterWeight(const char* name, int64_t width) {
    const auto norm =
        register_module(name, std::make_shared<torch::nn::Module>(name));
    return norm->register_parameter("weight", torch::ones({width}));
  }

  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const torch::Tensor& kept) {
    const auto [values, gate] = Project(x, norm, kept);
    torch::Tensor window;
    const ScanRows rows = Select(values, gate, kept, {}, window);
    return Gated(rows, std::get<0>(Scan(rows, {}, {}, false)));
  }

  // Values and gates [B, T, C] of x or of norm(x), one product for both. Rows
  // that are not kept are zeros before it, so that they do not enter the
  // gradients of the maps, and after it, as the norm of zeros may be its bias.
  std::pair<torch::Tensor, torch::Tensor> Project(
      const torch::Tensor& x, const NormLayer* norm,
      const torch::Tensor& kept) const {
    std::vector<torch::Tensor> biases;
    if (s_.in_bias) biases = {value_->bias, gate_->bias};
    const auto parts =
        Kept(ProjectRows(Kept(x, kept), norm, {value_->weight, gate_->weight},
                         std::move(biases)),
             kept)
            .chunk(2, 2);
    return {parts[0], parts[1]};
  }

  // Everything that the scan reads. A step of 0 leaves the state as it is.
  ScanRows Select(const torch::Tensor& values, const torch::Tensor& gate,
                  const torch::Tensor& kept, const torch::Tensor& lengths,
                  torch::Tensor& window) const {
    ScanRows rows;
    rows.gate = gate;
    rows.inputs = s_.width > 0 ? Convolve(convolution_, values, lengths, window)
                               : torch::silu(values);
    const auto parts =
        ops::Affine(rows.inputs, torch::cat({steps_down_->weight, key_->weight,
                                             query_->weight}))
            .split_with_sizes({s_.rank, s_.states, s_.states}, 2);
    rows.steps =
        Kept(torch::softplus(WideRows(ops::Affine(Normed(parts[0], steps_norm_),
                                                  steps_up_->weight)) +
                             dt_bias_),
             kept);
    rows.keys = Normed(parts[1], key_norm_);
    rows.queries = Normed(parts[2], query_norm_);
    return rows;
  }

  // x [B, T, W] over its root mean square; x without a norm.
  torch::Tensor Normed(const torch::Tensor& x,
                       const torch::Tensor& weight) const {
    if (!weight.defined()) return x;
    ops::GatedNormCall call;
    call.x = x.unsqueeze(2);
    call.weight = weight;
    call.eps = s_.selection_eps;
    return ops::GatedNorm(call).squeeze(2);
  }

  torch::Tensor Rates() const { return -WideRows(A_log_).exp(); }

  ops::ScanResults Scan(const ScanRows& rows, const torch::Tensor& lengths,
                        const torch::Tensor& initial, bool return_state) const {
    ops::ScanCall call;
    call.inputs = rows.inputs;
    call.steps = rows.steps;
    call.rates = Rates();
    call.keys = rows.keys;
    call.queries = rows.queries;
    call.skip = D_;
    call.lengths = ops::NoneOr(lengths);
    call.initial_state = ops::NoneOr(initial);
    call.return_state = return_state;
    return ops::SelectiveScan(call);
  }

  static torch::Tensor Gated(const ScanRows& rows, const torch::Tensor& out) {
    return out * torch::silu(rows.gate);
  }

  const MambaSizes s_;
  torch::nn::Linear value_{nullptr}, gate_{nullptr};
  torch::nn::Linear steps_down_{nullptr}, key_{nullptr}, query_{nullptr};
  torch::nn::Linear steps_up_{nullptr}, out_{nullptr};
  ConvolutionFilters convolution_;
  torch::Tensor dt_bias_, A_log_, D_;                 // [C], [C, N], [C]
  torch::Tensor steps_norm_, key_norm_, query_norm_;  // [rank], [N], [N]
};

std::shared_ptr<Mixer> NewMamba(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Mamba>(layer, place);
}

}  // namespace

std::vector<MixerRow> mamba::Mixers() { return {{"mamba1", NewMamba}}; }

}  // namespace tarn::nn
