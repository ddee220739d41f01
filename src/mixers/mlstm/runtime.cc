#include "mixers/mlstm/runtime.h"

#include <cmath>

#include "kernels/decay/decay_attention.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/mlstm/mlstm.h"
#include "mixers/mlstm/form.h"

namespace tarn::mixers {
namespace {

enum MlstmTensor : int64_t { kMlstmState, kMlstmMaximum };  // of the spec

// Columns of `in`: [H K] queries, [H K] keys, [H V] values, [H V] output gates,
// [H] input gates, [H] forget gates. Columns of `extra`: [H (V + 1)] what the
// cell takes for values, [H (V + 1)] what is read, [H] logarithms of decay
// factors, [H] m.
class Mlstm final : public RuntimeMixer {
 public:
  Mlstm(const ModelConfig& layer, MixerTensors& tensors)
      : s_(MlstmSizesOf(layer)), norm_weight_(tensors.Vector("norm.weight")) {
    // Of all maps those of the gates alone have biases, which Prepare adds.
    input_bias_ = tensors.Vector("input_projection.bias");
    forget_bias_ = tensors.Vector("forget_projection.bias");
    in_ = tensors.Stack(
        {"query_projection", "key_projection", "value_projection",
         "gate_projection", "input_projection", "forget_projection"},
        {s_.keys(), s_.keys(), s_.values(), s_.values(), s_.heads, s_.heads},
        s_.d_model, /*biases=*/false);
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.values(),
                         /*biases=*/false);
    norm_ = {.groups = s_.heads,
             .width = s_.d_value,
             .eps = layer.norm_eps,
             .centred = true,
             .activation = NormGate::kSigmoid,
             .weight_by_group = true};
  }

  int64_t row_floats() const override {
    return 2 * s_.heads * s_.columns() + 2 * s_.heads;
  }

  // A task for each sequence and head.
  void Mix(MixerBlock& block, int64_t layer) const override {
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    // About four state entries a nanosecond.
    const int64_t ns = s_.d_key * s_.columns() / 4 + 300;
    block.ForTasks(
        segments * s_.heads, ns * ((block.rows() + segments - 1) / segments),
        [&](int64_t task, int) {
          Advance(block, block.segments[static_cast<size_t>(task / s_.heads)],
                  layer, task % s_.heads);
        });
    block.ForRows(8 * s_.values(),
                  [&](int64_t row) { Finish(block, row, 0, s_.heads); });
  }

  int64_t units(int) const override { return s_.heads; }
  void Step(MixerBlock& block, const StepShare& share) const override {
    for (const Segment& segment : block.segments) {
      for (int64_t head = share.begin; head < share.end; ++head) {
        Advance(block, segment, share.layer, head);
      }
    }
    for (int64_t row = 0; row < block.rows(); ++row) {
      Finish(block, row, share.begin, share.end - share.begin);
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t head) const override {
    return block.segments.front().state->Tensor(layer, kMlstmState) +
           head * s_.d_key * s_.columns();
  }

 private:
  int64_t made() const { return s_.heads * s_.columns(); }  // width of a part
  float* Value(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.extra[row] + head * s_.columns();
  }
  float* Read(const MixerBlock& block, int64_t row, int64_t head) const {
    return Value(block, row, head) + made();
  }
  float* Decay(const MixerBlock& block, int64_t row, int64_t head) const {
    return block.extra[row] + 2 * made() + head;
  }
  float* Maximum(const MixerBlock& block, int64_t row, int64_t head) const {
    return Decay(block, row, head) + s_.heads;
  }

  // m, the decay and what the state takes in; m of the state advances.
  void Prepare(const MixerBlock& block, const Segment& segment, int64_t head,
               float* maximum) const {
    const int64_t row = segment.row;
    const auto view = [&](float* data, int64_t stride) {
      return TensorView{
          data, {1, segment.count, 1, 1}, {0, stride, 1}, DType::kF32};
    };
    float* gates = block.in[row] + 2 * (s_.keys() + s_.values()) + head;
    MlstmGatesInputs in;
    in.input_gates = view(gates, block.in.stride);
    in.forget_gates = view(gates + s_.heads, block.in.stride);
    in.input_bias = input_bias_.data() + head;
    in.forget_bias = forget_bias_.data() + head;
    in.softcap = static_cast<float>(s_.softcap);
    in.initial_maximum = maximum;
    SerialExecutor serial;
    MlstmGatesForward(
        in,
        {.gates = view(Decay(block, row, head), block.extra.stride),
         .factors = in.input_gates,  // in the place of its number
         .maxima = view(Maximum(block, row, head), block.extra.stride),
         .final_maximum = maximum},
        serial);
    for (int64_t at = row; at < row + segment.count; ++at) {
      const float* in_row = block.in[at];
      MlstmValueRow(in_row[2 * (s_.keys() + s_.values()) + head],
                    in_row + 2 * s_.keys() + head * s_.d_value, s_.d_value,
                    Value(block, at, head));
    }
  }

  // The rows of a segment over the state of one head.
  void Advance(const MixerBlock& block, const Segment& segment, int64_t layer,
               int64_t head) const {
    if (segment.count == 0) return;
    Prepare(block, segment, head,
            segment.state->Tensor(layer, kMlstmMaximum) + head);
    const auto view = [&](float* data, int64_t stride, int64_t width) {
      return TensorView{
          data, {1, segment.count, 1, width}, {0, stride, width}, DType::kF32};
    };
    const int64_t row = segment.row, stride = block.extra.stride;
    float* in_row = block.in[row];
    RecurrentInputs in;
    in.queries = view(in_row + head * s_.d_key, block.in.stride, s_.d_key);
    in.keys =
        view(in_row + s_.keys() + head * s_.d_key, block.in.stride, s_.d_key);
    in.values = view(Value(block, row, head), stride, s_.columns());
    in.gates = view(Decay(block, row, head), stride, 1);
    float* state = segment.state->Tensor(layer, kMlstmState) +
                   head * s_.d_key * s_.columns();
    SerialExecutor serial;
    DecayAttentionStep(
        {.scale = 1.0f / std::sqrt(static_cast<float>(s_.d_key))}, in,
        {.state = state, .next = state},
        view(Read(block, row, head), stride, s_.columns()), serial);
  }

  // Divides by the denominator of each of `count` heads, normalises and gates.
  void Finish(const MixerBlock& block, int64_t row, int64_t first,
              int64_t count) const {
    const int64_t column = first * s_.d_value;
    float* out = block.out[row] + column;
    for (int64_t head = 0; head < count; ++head) {
      MlstmReadRow(Read(block, row, first + head),
                   *Maximum(block, row, first + head), s_.d_value,
                   static_cast<float>(kMlstmEps), out + head * s_.d_value);
    }
    GatedNormOptions norm = norm_;
    norm.groups = count;
    GatedNormRow(norm, out,
                 block.in[row] + 2 * s_.keys() + s_.values() + column,
                 norm_weight_.data() + column, /*bias=*/nullptr, out);
  }

  const MlstmSizes s_;
  const std::vector<float> norm_weight_;         // [H, V]
  std::vector<float> input_bias_, forget_bias_;  // [H]
  GatedNormOptions norm_;
};

std::unique_ptr<RuntimeMixer> NewMlstm(const ModelConfig& layer,
                                       MixerTensors& tensors) {
  return std::make_unique<Mlstm>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> mlstm::RuntimeMixers() {
  return {{"mlstm", nullptr, NewMlstm}};
}

}  // namespace tarn::mixers
