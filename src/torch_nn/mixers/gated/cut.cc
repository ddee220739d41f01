#include "torch_nn/mixers/gated/cut.h"

#include "torch_nn/mixers/common/state_maps.h"

namespace tarn::nn {
namespace {

// A piece maps the state S before it to A S + b. Under decay alone A is
// diagonal, the product of all factors: [B, H, 1] or [B, H, K]. 1 without.
torch::Tensor TotalDecay(const GatedInputs& in, const SequenceCut& cut) {
  if (!in.gates.defined()) {
    return torch::ones({in.values.size(0), in.values.size(2), 1},
                       in.values.options().dtype(WideType(in.values)));
  }
  if (in.gates.dim() > 1) {
    const torch::Tensor sums = in.gates.sum(1);
    return (sums.dim() == 2 ? sums.unsqueeze(-1) : sums).exp();
  }
  return (in.gates * cut.size())
      .exp()
      .unsqueeze(-1)
      .expand({in.values.size(0), in.gates.size(0), 1});
}

// Under the delta rule A is a matrix [B, H, K, K]: what becomes of the identity
// while nothing is written, side by side with b, which begins at 0.
std::pair<torch::Tensor, torch::Tensor> DeltaMap(const GatedForm& form,
                                                 const GatedSizes& s,
                                                 const GatedInputs& in) {
  std::vector<int64_t> nothing = in.values.sizes().vec();
  nothing.back() = s.d_key;
  GatedInputs own = in;
  own.queries = in.keys;  // nothing is read
  own.values =
      torch::cat({in.values, torch::zeros(nothing, in.values.options())}, -1);
  const torch::TensorOptions options =
      in.values.options().dtype(WideType(in.values));
  const torch::Tensor first =
      torch::cat({torch::zeros({s.d_key, s.d_value}, options),
                  torch::eye(s.d_key, options)},
                 -1)
          .expand({in.values.size(0), s.heads, s.d_key, s.d_value + s.d_key})
          .contiguous();
  const torch::Tensor last =
      Recur(form, s, own, {}, first, /*return_state=*/true).final_state;
  return {last.slice(-1, 0, s.d_value), last.slice(-1, s.d_value)};
}

}  // namespace

torch::Tensor StateBefore(const GatedForm& form, const GatedSizes& s,
                          const GatedInputs& in, const SequenceCut& cut) {
  torch::Tensor own, map;
  if (form.delta) {
    std::tie(own, map) = DeltaMap(form, s, in);
  } else {
    own = Recur(form, s, in, {}, {}, /*return_state=*/true).final_state;
    map = TotalDecay(in, cut);
  }
  const auto earlier =
      cut.Earlier({own, map}, {torch::zeros_like(own), torch::zeros_like(map)});
  return StateAfter(earlier);
}

}  // namespace tarn::nn
