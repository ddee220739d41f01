// Layers of a stack in one region of torch's pool (kernels/layer_step).
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/layer_step/full_step.h"
#include "kernels/layer_step/linear_step.h"
#include "kernels/layer_step/memory_step.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/recurrent/growing_cache.h"
#include "torch_ops/recurrent/layer_call.h"

namespace tarn::ops::layer_step {
namespace {

// Multiply-adds of a layer that are worth one more thread: below this, handing
// work over costs more than sharing it saves.
constexpr int64_t kLeastWork = 1 << 15;

// Addresses of dense weights; what had to be made dense is held.
class Weights {
 public:
  const float* Data(const OptionalTensor& weight) {
    if (!weight.has_value()) return nullptr;
    if (weight->is_contiguous()) return weight->const_data_ptr<float>();
    return Hold(weight->contiguous()).const_data_ptr<float>();
  }

  const at::Tensor& Hold(at::Tensor tensor) {
    return held_.emplace_back(std::move(tensor));
  }

  LayerStepLayer Layer(const Call& in) {
    const auto data = [&](Place place) { return Data(in.weights[place]); };
    const auto map = [&](Place weight, Place bias) {
      return LayerStepMap{data(weight), data(bias)};
    };
    LayerStepLayer layer;
    layer.attention[0] = {map(kQuery, kQueryBias),
                          map(kKey, kKeyBias),
                          map(kValue, kValueBias),
                          map(kOut, kOutBias),
                          {data(kGamma1), data(kBeta1)}};
    layer.linear1 = map(kLinear1, kBias1);
    layer.linear2 = map(kLinear2, kBias2);
    layer.linear3 = data(kLinear3);
    layer.norm = {data(kGamma2), data(kBeta2)};
    if (in.kind.cross.has_value()) {
      layer.attention[1] = {map(kCrossQuery, kCrossQueryBias),
                            {},
                            {},
                            map(kCrossOut, kCrossOutBias),
                            {data(kCrossGamma), data(kCrossBeta)}};
    }
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
  call.attentions = in.kind.cross.has_value() ? 2 : 1;
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

float ScaleOf(const std::optional<double>& temperature,
              const LayerStepCall& call) {
  return static_cast<float>(
      temperature.value_or(1.0 / std::sqrt(static_cast<double>(call.d_key))));
}

// The attentions of layers computed together, and their states.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void Clear() = 0;
  // Adds a layer: its state is read, the next one is made in `results`.
  virtual void Add(const Call& in, const LayerStepCall& call, Weights& weights,
                   LayersResults& results) = 0;
  // The attention of all layers; `call` and this have to outlive it.
  virtual std::unique_ptr<StepAttention> Attention(const LayerStepCall& call,
                                                   int width) = 0;
};

class LinearMemory final : public Memory {
 public:
  explicit LinearMemory(const Kind& kind)
      : options_(KernelOptions(kind.attention)) {}
  void Clear() override { states_.clear(); }
  void Add(const Call& in, const LayerStepCall& call, Weights& weights,
           LayersResults& results) override {
    const int64_t rows = call.rows, heads = call.heads;
    at::Tensor S = EmptyDense({rows, heads, call.d_key, call.d_value});
    at::Tensor z = EmptyDense({rows, heads, call.d_key});
    states_.push_back({weights.Data(in.S), weights.Data(in.z),
                       S.mutable_data_ptr<float>(),
                       z.mutable_data_ptr<float>()});
    results.S.push_back(std::move(S));
    results.z.push_back(std::move(z));
  }
  std::unique_ptr<StepAttention> Attention(const LayerStepCall& call,
                                           int) override {
    return std::make_unique<LinearStepAttention>(options_, call,
                                                 states_.data());
  }

 private:
  LinearAttentionOptions options_;
  std::vector<LinearAttentionState> states_;
};

class FullMemory final : public Memory {
 public:
  explicit FullMemory(const Kind& kind) : temperature_(kind.softmax_temp) {}
  void Clear() override { states_.clear(); }
  void Add(const Call& in, const LayerStepCall& call, Weights&,
           LayersResults& results) override {
    at::Tensor keys = WithRoom(in.S, {call.rows, 1, call.heads, call.d_key});
    at::Tensor values =
        WithRoom(in.z, {call.rows, 1, call.heads, call.d_value});
    states_.push_back({keys.mutable_data_ptr<float>(),
                       values.mutable_data_ptr<float>(), keys.stride(0),
                       values.stride(0), keys.size(1)});
    results.S.push_back(std::move(keys));
    results.z.push_back(std::move(values));
  }
  std::unique_ptr<StepAttention> Attention(const LayerStepCall& call,
                                           int width) override {
    int64_t longest = 0;
    for (const FullStepState& state : states_) {
      longest = std::max(longest, state.seq_len);
    }
    scores_ = EmptyDense({width * longest});
    return std::make_unique<FullStepAttention>(
        ScaleOf(temperature_, call), call, states_.data(),
        scores_.mutable_data_ptr<float>());
  }

 private:
  std::optional<double> temperature_;
  std::vector<FullStepState> states_;
  at::Tensor scores_;
};

// Layers that also read a memory, which stays: no new one is made.
class DecoderMemory final : public Memory {
 public:
  DecoderMemory(const Kind& kind, std::unique_ptr<Memory> self)
      : kind_(kind), self_(std::move(self)) {}
  void Clear() override {
    self_->Clear();
    memories_.clear();
  }
  void Add(const Call& in, const LayerStepCall& call, Weights& weights,
           LayersResults& results) override {
    self_->Add(in, call, weights, results);
    MemoryStepState& memory = memories_.emplace_back();
    if (*kind_.cross == Mixer::kLinear) {
      memory.S = weights.Data(in.memory_S);
      memory.z = weights.Data(in.memory_z);
      return;
    }
    // A sequence's rows may have any strides; a row itself is dense.
    const auto dense = [&](const at::Tensor& rows) -> const at::Tensor& {
      return weights.Hold(rows.stride(3) == 1 ? rows : rows.contiguous());
    };
    const at::Tensor keys = dense(*in.memory_S), values = dense(*in.memory_z);
    memory.cache.keys = keys.const_data_ptr<float>();
    memory.cache.values = values.const_data_ptr<float>();
    memory.cache.key_stride = keys.stride(1);
    memory.cache.value_stride = values.stride(1);
    memory.cache.seq_len = keys.size(1);
    memory.cache.d_key = call.d_key;
    memory.cache.d_value = call.d_value;
    memory.key_row = keys.stride(0);
    memory.key_head = keys.stride(2);
    memory.value_row = values.stride(0);
    memory.value_head = values.stride(2);
  }
  std::unique_ptr<StepAttention> Attention(const LayerStepCall& call,
                                           int width) override {
    int64_t longest = 0;
    for (const MemoryStepState& memory : memories_) {
      longest = std::max(longest, memory.cache.seq_len);
    }
    scores_ = EmptyDense({width * longest});
    own_ = self_->Attention(call, width);
    return std::make_unique<MemoryStepAttention>(
        *own_, call, KernelOptions(kind_.attention),
        ScaleOf(kind_.softmax_temp, call), memories_.data(),
        scores_.mutable_data_ptr<float>(), longest);
  }

 private:
  Kind kind_;
  std::unique_ptr<Memory> self_;
  std::unique_ptr<StepAttention> own_;
  std::vector<MemoryStepState> memories_;
  at::Tensor scores_;
};

std::unique_ptr<Memory> MakeMemory(const Kind& kind) {
  std::unique_ptr<Memory> self;
  if (kind.mixer == Mixer::kFull) {
    self = std::make_unique<FullMemory>(kind);
  } else {
    self = std::make_unique<LinearMemory>(kind);
  }
  if (!kind.cross.has_value()) return self;
  return std::make_unique<DecoderMemory>(kind, std::move(self));
}

}  // namespace

LayersResults TeamSteps(const std::vector<Call>& layers, const at::Tensor& x,
                        const After& after) {
  const size_t count = layers.size();
  LayersResults results;
  at::Tensor from = x.contiguous();
  Weights weights;
  std::vector<LayerStepLayer> parts;
  const std::unique_ptr<Memory> memory = MakeMemory(layers.front().kind);
  // Layers of the same sizes are computed together: as a rule, all.
  for (size_t begin = 0, end; begin < count; begin = end) {
    const Call& first = layers[begin];
    LayerStepCall call = SizesOf(first);
    parts.clear();
    memory->Clear();
    for (end = begin; end < count && SameSizes(first, layers[end]); ++end) {
      parts.push_back(weights.Layer(layers[end]));
      memory->Add(layers[end], call, weights, results);
    }
    call.layers = parts.data();
    call.count = static_cast<int64_t>(parts.size());
    int64_t outputs = call.width;
    if (end == count) {
      call.last_norm = {weights.Data(after.gamma), weights.Data(after.beta)};
      call.head = {weights.Data(after.head), weights.Data(after.head_bias)};
      if (after.head.has_value()) {
        outputs = call.outputs = after.head->size(0);
      }
    }
    results.out = EmptyDense({call.rows, outputs});
    call.x = from.const_data_ptr<float>();
    call.out = results.out.mutable_data_ptr<float>();
    TorchExecutor executor(WidthFor(call));
    const at::Tensor workspace =
        EmptyDense({LayerStepWorkspaceFloats(call, executor.width())});
    const auto attention = memory->Attention(call, executor.width());
    Team team(executor);
    LayerSteps(call, *attention, workspace.mutable_data_ptr<float>(), team);
    from = results.out;
  }
  return results;
}

}  // namespace tarn::ops::layer_step
