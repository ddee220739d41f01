#include "torch_nn/mixers/lru/lru.h"

#include <cmath>
#include <tuple>

#include "kernels/rg_lru/rg_lru.h"
#include "mixers/lru/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/common/state_maps.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/state/lengths.h"
#include "torch_ops/cells/cells.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/elementwise/elementwise.h"

namespace tarn::nn {
namespace {

// What the recurrence reads of the rows [B, T, C] of a call, and z.
struct LruRows {
  torch::Tensor inputs, gates, z;
};

// Bias [C] and weights [H, V, V] of a gate, those of a submodule; as the
// linear maps of blocks they begin like those of torch.nn.Linear.
struct BlockGate {
  BlockGate() = default;
  BlockGate(torch::nn::Module& owner, const char* name, const LruSizes& s) {
    const auto module =
        owner.register_module(name, std::make_shared<torch::nn::Module>(name));
    const double bound = 1 / std::sqrt(static_cast<double>(s.block));
    weight = module->register_parameter(
        "weight",
        torch::empty({s.heads, s.block, s.block}).uniform_(-bound, bound));
    bias = module->register_parameter("bias", torch::zeros({s.channels}));
  }

  // weight u [B, T, C] of u [B, T, C].
  torch::Tensor Of(const torch::Tensor& u) const {
    return torch::einsum("bthi,hoi->btho", {AsHeads(u, weight.size(0)),
                                            weight.to(u.scalar_type())})
        .flatten(2);
  }

  torch::Tensor weight, bias;
};

// The state is h [B, C] and, after a convolution, the rows [B, W - 1, C] that
// it still reads: of constant size. O(T) time.
class Lru : public Mixer {
 public:
  Lru(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place), s_(LruSizesOf(layer)) {
    value_ = register_module("value_projection",
                             torch::nn::Linear(s_.d_model, s_.channels));
    gate_ = register_module("gate_projection",
                            torch::nn::Linear(s_.d_model, s_.channels));
    if (s_.width > 0) {
      convolution_ = ConvolutionFilters(*this, s_.channels, s_.width,
                                        /*with_bias=*/true);
    }
    input_gate_ = BlockGate(*this, "input_gate", s_);
    recurrence_gate_ = BlockGate(*this, "recurrence_gate", s_);
    // The decay of an open gate, exp(-8 softplus(Lambda)), is drawn evenly from
    // [0.9, 0.999] (section 2.4).
    const torch::Tensor a = torch::empty({s_.channels}).uniform_(0.9, 0.999);
    Lambda_ = register_parameter(
        "Lambda", torch::log(torch::expm1(-torch::log(a) / kRgLruRate)));
    out_ = register_module("out_projection",
                           torch::nn::Linear(s_.channels, s_.d_model));
  }

  torch::Tensor OutputBias() const override { return out_->bias; }
  torch::Tensor OutputWeight() const override { return out_->weight; }

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

  // A piece maps the state before it to exp(sum(log a)) h + own.
  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext&, const NormLayer* norm) override {
    const auto [values, z] = Project(x, norm, {});
    torch::Tensor window;
    if (s_.width > 0) window = WindowBefore(values, s_.width, cut);
    const torch::Tensor begins =
        torch::full({1}, cut.begin() == 0, values.options().dtype(at::kBool));
    const LruRows rows =
        Select(values, z, {}, FirstRow(values, begins), {}, window);
    const auto matrix = [](const torch::Tensor& t) {
      return t.unsqueeze(-1).unsqueeze(-1);  // [B, C, 1, 1]
    };
    const torch::Tensor own =
        matrix(std::get<1>(Recur(rows, {}, {}, /*return_state=*/true)));
    const torch::Tensor map = rows.gates.sum(1).exp().unsqueeze(-1);
    const auto earlier = cut.Earlier(
        {own, map}, {torch::zeros_like(own), torch::zeros_like(map)});
    const torch::Tensor before = StateAfter(earlier).flatten(1);
    return Gated(rows, std::get<0>(Recur(rows, {}, before, false)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    const auto [values, z] = Project(x, nullptr, {});
    torch::Tensor window;
    if (s_.width > 0) window = state["window"];
    const torch::Tensor begins = (state.lengths == 0).to(values.device());
    const LruRows rows =
        Select(values, z, {}, FirstRow(values, begins), taken.lengths, window);
    const auto [out, last, _] =
        Recur(rows, taken.lengths, state["h"], /*return_state=*/true);
    state["h"] = last;
    if (s_.width > 0) state["window"] = window;
    return Gated(rows, out);
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const torch::Tensor& kept) {
    const auto [values, z] = Project(x, norm, kept);
    torch::Tensor window, first;
    if (kept.defined()) {
      first = kept.logical_and(kept.cumsum(1) == 1);
    } else {
      first =
          FirstRow(values, torch::ones({1}, values.options().dtype(at::kBool)));
    }
    const LruRows rows = Select(values, z, kept, first, {}, window);
    return Gated(rows, std::get<0>(Recur(rows, {}, {}, false)));
  }

  // [B or 1, T] bool: row 0 of the sequences that begin here.
  static torch::Tensor FirstRow(const torch::Tensor& values,
                                const torch::Tensor& begins) {
    const torch::Tensor row =
        torch::arange(values.size(1), begins.options().dtype(at::kLong)) == 0;
    return begins.unsqueeze(-1).logical_and(row);
  }

  // Values and z [B, T, C] of x or of norm(x), one product for both. Rows that
  // are not kept are zeros before it, so that they do not enter the gradients
  // of the maps, and after it, as biases are not.
  std::pair<torch::Tensor, torch::Tensor> Project(
      const torch::Tensor& x, const NormLayer* norm,
      const torch::Tensor& kept) const {
    const auto parts =
        Kept(ProjectRows(Kept(x, kept), norm, {value_->weight, gate_->weight},
                         {value_->bias, gate_->bias}),
             kept)
            .chunk(2, 2);
    return {parts[0], parts[1]};
  }

  // Everything that the recurrence reads. first [B or 1, T]: the first tokens
  // of sequences.
  LruRows Select(const torch::Tensor& values, const torch::Tensor& z,
                 const torch::Tensor& kept, const torch::Tensor& first,
                 const torch::Tensor& lengths, torch::Tensor& window) const {
    const torch::Tensor u =
        s_.width > 0 ? Convolve(convolution_, values, lengths, window, "none")
                     : values;
    ops::RgLruGatesCall call;
    call.inputs = u;
    call.input_gates = input_gate_.Of(u);
    call.recurrence_gates = recurrence_gate_.Of(u);
    call.Lambda = Lambda_;
    call.input_bias = input_gate_.bias;
    call.recurrence_bias = recurrence_gate_.bias;
    call.begins = first.expand({values.size(0), values.size(1)});
    call.kept = ops::NoneOr(kept);
    LruRows rows;
    rows.z = z;
    std::tie(rows.inputs, rows.gates) = ops::RgLruGates(call);
    return rows;
  }

  static ops::ElementwiseResults Recur(const LruRows& rows,
                                       const torch::Tensor& lengths,
                                       const torch::Tensor& initial,
                                       bool return_state) {
    ops::ElementwiseCall call;
    call.inputs = rows.inputs;
    call.gates = rows.gates;
    call.lengths = ops::NoneOr(lengths);
    call.initial_state = ops::NoneOr(initial);
    call.return_state = return_state;
    return ops::ElementwiseRecurrence(call);
  }

  static torch::Tensor Gated(const LruRows& rows, const torch::Tensor& h) {
    return h.to(rows.z.scalar_type()) * torch::gelu(rows.z, "tanh");
  }

  const LruSizes s_;
  torch::nn::Linear value_{nullptr}, gate_{nullptr}, out_{nullptr};
  ConvolutionFilters convolution_;
  BlockGate input_gate_, recurrence_gate_;
  torch::Tensor Lambda_;  // [C]
};

std::shared_ptr<Mixer> NewLru(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Lru>(layer, place);
}

}  // namespace

std::vector<MixerRow> lru::Mixers() { return {{"rg-lru", NewLru}}; }

}  // namespace tarn::nn
