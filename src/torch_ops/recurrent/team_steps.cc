// Layers of a stack in one region of torch's pool (kernels/layer_step).
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "kernels/layer_step/linear_step.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/recurrent/layer_call.h"

namespace tarn::ops::layer_step {
namespace {

// Multiply-adds of a layer for which a thread joins in: below, a hand-over
// costs more than a share saves.
constexpr int64_t kLeastWork = 1 << 15;

// Addresses of dense weights; what had to be made dense is held.
class Weights {
 public:
  const float* Data(const OptionalTensor& weight) {
    if (!weight.has_value()) return nullptr;
    if (weight->is_contiguous()) return weight->const_data_ptr<float>();
    held_.push_back(weight->contiguous());
    return held_.back().const_data_ptr<float>();
  }

  LayerStepLayer Layer(const Call& in) {
    const auto data = [&](Place place) { return Data(in.weights[place]); };
    const auto map = [&](Place weight, Place bias) {
      return LayerStepMap{data(weight), data(bias)};
    };
    LayerStepLayer layer;
    layer.attention[0] = {map(kQuery, kQueryBias), map(kKey, kKeyBias),
                          map(kValue, kValueBias), map(kOut, kOutBias),
                          {data(kGamma1), data(kBeta1)}};
    layer.linear1 = map(kLinear1, kBias1);
    layer.linear2 = map(kLinear2, kBias2);
    layer.linear3 = data(kLinear3);
    layer.norm = {data(kGamma2), data(kBeta2)};
    return layer;
  }

 private:
  std::vector<at::Tensor> held_;
};

LayerStepCall SizesOf(const Call& in) {
  LayerStepCall call;
  call.rows = in.x.size(0);
  call.width = in.x.size(1);
  call.heads = in.kind.heads;
  call.d_key = in.weight(kQuery).size(0) / call.heads;
  call.d_value = in.weight(kValue).size(0) / call.heads;
  call.hidden = in.weight(kLinear1).size(0);
  call.pre_norm = in.kind.pre_norm;
  call.norm_kind = in.kind.norm;
  call.norm_eps = in.kind.norm_eps;
  call.activation = in.kind.activation == Activation::kRelu
                        ? Nonlinearity::kRelu
                        : Nonlinearity::kGelu;
  return call;
}

bool SameSizes(const Call& a, const Call& b) {
  for (const Place place : {kQuery, kValue, kLinear1}) {
    if (a.weight(place).size(0) != b.weight(place).size(0)) return false;
  }
  return true;
}

int WidthFor(const LayerStepCall& call) {
  const int64_t heads = call.heads * (call.d_key + call.d_value);
  const int64_t work = call.rows * call.width * 2 * (heads + call.hidden);
  return static_cast<int>(std::clamp<int64_t>(work / kLeastWork, 1, 1 << 20));
}

}  // namespace

LayersResults TeamSteps(const std::vector<Call>& layers, const at::Tensor& x,
                        const OptionalTensor& gamma,
                        const OptionalTensor& beta) {
  const size_t count = layers.size();
  LayersResults results;
  results.out = EmptyDense(x.sizes());
  at::Tensor from = x.contiguous();
  Weights weights;
  std::vector<LayerStepLayer> parts;
  std::vector<LinearAttentionState> states;
  at::Tensor workspace;
  // Layers of the same sizes go together: as a rule, all.
  for (size_t begin = 0, end; begin < count; begin = end) {
    const Call& first = layers[begin];
    LayerStepCall call = SizesOf(first);
    parts.clear();
    states.clear();
    for (end = begin; end < count && SameSizes(first, layers[end]); ++end) {
      const Call& in = layers[end];
      parts.push_back(weights.Layer(in));
      results.S.push_back(
          EmptyDense({call.rows, call.heads, call.d_key, call.d_value}));
      results.z.push_back(EmptyDense({call.rows, call.heads, call.d_key}));
      states.push_back({weights.Data(in.S), weights.Data(in.z),
                        results.S.back().mutable_data_ptr<float>(),
                        results.z.back().mutable_data_ptr<float>()});
    }
    call.layers = parts.data();
    call.count = static_cast<int64_t>(parts.size());
    if (end == count) call.last_norm = {weights.Data(gamma), weights.Data(beta)};
    if (begin > 0) from = results.out.clone();
    call.x = from.const_data_ptr<float>();
    call.out = results.out.mutable_data_ptr<float>();
    TorchExecutor executor(WidthFor(call));
    workspace = EmptyDense({LayerStepWorkspaceFloats(call, executor.width())});
    const LinearStepAttention attention(KernelOptions(first.kind.attention),
                                        call, states.data());
    Team team(executor);
    LayerSteps(call, attention, workspace.mutable_data_ptr<float>(), team);
  }
  return results;
}

}  // namespace tarn::ops::layer_step
