#include "mixers/lru/runtime.h"

#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/elementwise_recurrence/elementwise_recurrence.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rg_lru/rg_lru.h"
#include "mixers/common/runtime_attention.h"
#include "mixers/common/runtime_convolution.h"
#include "mixers/lru/form.h"

namespace tarn::mixers {
namespace {

enum LruTensor : int64_t { kLruState, kLruWindow };  // of the spec's state

// Channels of a task of the recurrence; any cut gives the same bits.
constexpr int64_t kLruShare = 64;

// Columns of `in`: [C] values, [C] z. Columns of `extra`: [C] u,
// [C] input gates, then inputs of the recurrence, [C] recurrence gates, then
// the logarithms of decay factors.
class Lru final : public RuntimeMixer {
 public:
  Lru(const ModelConfig& layer, MixerTensors& tensors)
      : s_(LruSizesOf(layer)),
        input_bias_(tensors.Vector("input_gate.bias")),
        recurrence_bias_(tensors.Vector("recurrence_gate.bias")),
        rates_(tensors.Vector("Lambda")) {
    RgLruRates(rates_.data(), s_.channels, rates_.data());
    if (s_.width > 0) {
      convolution_ =
          RuntimeConvolution(tensors, s_.channels, s_.width,
                             /*with_bias=*/true, ConvolutionActivation::kNone);
    }
    in_ = tensors.Stack({"value_projection", "gate_projection"},
                        {s_.channels, s_.channels}, s_.d_model,
                        /*biases=*/true);
    input_gates_ =
        tensors.Matrices("input_gate.weight", s_.heads, s_.block, s_.block);
    recurrence_gates_ = tensors.Matrices("recurrence_gate.weight", s_.heads,
                                         s_.block, s_.block);
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.channels,
                         /*biases=*/true);
  }

  int64_t bytes() const override {
    int64_t sum = RuntimeMixer::bytes();
    for (const WeightMatrix& w : input_gates_) sum += w.bytes();
    for (const WeightMatrix& w : recurrence_gates_) sum += w.bytes();
    return sum;
  }
  int64_t row_floats() const override { return 3 * s_.channels; }

  // Everything around the recurrence treats each row separately; it is a task
  // for each sequence and share of channels.
  void Mix(MixerBlock& block, int64_t layer) const override {
    Convolve(block, layer);
    for (int64_t h = 0; h < s_.heads; ++h) {
      Multiply(block, h, input_gates_, Inputs(block));
      Multiply(block, h, recurrence_gates_, Gates(block));
    }
    block.ForRows(16 * s_.channels, [&](int64_t row) {
      Prepare(block, row, {0, s_.channels});
    });
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t cuts = (s_.channels + kLruShare - 1) / kLruShare;
    block.ForTasks(
        segments * cuts, kLruShare * ((block.rows() + segments - 1) / segments),
        [&](int64_t task, int) {
          const int64_t begin = task % cuts * kLruShare;
          Recur(block, block.segments[static_cast<size_t>(task / cuts)], layer,
                {begin, std::min(kLruShare, s_.channels - begin)});
        });
    block.ForRows(8 * s_.channels, [&](int64_t row) {
      Finish(block, row, {0, s_.channels});
    });
  }

  // A head's gates read the channels of that head alone.
  int64_t units(int) const override { return s_.heads; }
  void Step(MixerBlock& block, const StepShare& share) const override {
    const StepColumns own = ColumnsOf(s_.channels, s_.block, share);
    if (s_.width > 0) {
      convolution_.Step(block, share.layer, kLruWindow, block.in, Values(block),
                        own);
    } else {
      for (int64_t row = 0; row < block.rows(); ++row) {
        std::copy_n(block.in[row] + own.begin, own.count,
                    Values(block)[row] + own.begin);
      }
    }
    for (int64_t head = share.begin; head < share.end; ++head) {
      const size_t h = static_cast<size_t>(head);
      const int64_t column = head * s_.block;
      const Rows x = Values(block).Columns(column);
      const WeightMatrix &input = input_gates_[h],
                         &recurrence = recurrence_gates_[h];
      RunProducts(
          {{.w = &input, .x = x, .y = Inputs(block).Columns(column)},
           {.w = &recurrence, .x = x, .y = Gates(block).Columns(column)}},
          {.begin = 0,
           .end = PanelUnits({&input, &recurrence}),
           .rows = block.rows(),
           .next = head + 1 < share.end ? input_gates_[h + 1].Panel(0)
                                        : share.next});
    }
    for (int64_t row = 0; row < block.rows(); ++row) Prepare(block, row, own);
    for (const Segment& segment : block.segments) {
      Recur(block, segment, share.layer, own);
    }
    for (int64_t row = 0; row < block.rows(); ++row) Finish(block, row, own);
  }
  const void* Reads(const MixerBlock&, int64_t, int,
                    int64_t head) const override {
    return input_gates_[static_cast<size_t>(head)].Panel(0);
  }

 private:
  Rows Values(const MixerBlock& block) const { return block.extra; }
  Rows Inputs(const MixerBlock& block) const {
    return {block.extra.data + s_.channels, block.extra.stride};
  }
  Rows Gates(const MixerBlock& block) const {
    return {block.extra.data + 2 * s_.channels, block.extra.stride};
  }

  // u = convolution(values) of every segment, after its window.
  void Convolve(MixerBlock& block, int64_t layer) const {
    if (s_.width > 0) {
      convolution_.Run(block, layer, kLruWindow, block.in, Values(block));
      return;
    }
    block.ForRows(s_.channels / 4, [&](int64_t row) {
      std::copy_n(block.in[row], s_.channels, Values(block)[row]);
    });
  }

  // One block of a gate's matrix.
  void Multiply(MixerBlock& block, int64_t head,
                const std::vector<WeightMatrix>& gates, const Rows& to) const {
    const int64_t column = head * s_.block;
    PackedMatMul(Values(block).data + column, block.extra.stride, block.rows(),
                 gates[static_cast<size_t>(head)],
                 {to.data + column, to.stride}, block.executor());
  }

  // What the recurrence reads, in the place of what the gates are made of.
  void Prepare(const MixerBlock& block, int64_t row, StepColumns own) const {
    float* inputs = Inputs(block)[row] + own.begin;
    float* gates = Gates(block)[row] + own.begin;
    RgLruGatesRow(
        {own.count, rates_.data() + own.begin, input_bias_.data() + own.begin,
         recurrence_bias_.data() + own.begin},
        /*begins=*/block.positions[static_cast<size_t>(row)] == 0,
        Values(block)[row] + own.begin, inputs, gates, inputs, gates);
  }

  // The rows of a segment over the states of a share of channels.
  void Recur(const MixerBlock& block, const Segment& segment, int64_t layer,
             StepColumns own) const {
    const auto view = [&](const Rows& rows) {
      return HeadView(rows[segment.row] + own.begin, segment.count, rows.stride,
                      own.count);
    };
    ElementwiseRecurrenceInputs in;
    in.inputs = view(Inputs(block));
    in.gates = view(Gates(block));
    float* state = segment.state->Tensor(layer, kLruState) + own.begin;
    in.initial_state = state;
    ElementwiseRecurrenceOutputs outputs;
    outputs.out = view(block.out);
    outputs.final_state = state;
    SerialExecutor serial;
    ElementwiseRecurrenceForward(in, outputs, serial);
  }

  // out = h gelu(z).
  void Finish(const MixerBlock& block, int64_t row, StepColumns own) const {
    const float* z = block.in[row] + s_.channels + own.begin;
    float* gate = Values(block)[row] + own.begin;
    float* out = block.out[row] + own.begin;
    GeluTanhRow(z, own.count, gate);
    for (int64_t c = 0; c < own.count; ++c) out[c] *= gate[c];
  }

  const LruSizes s_;
  const std::vector<float> input_bias_, recurrence_bias_;  // [C]
  std::vector<float> rates_;                               // [C]
  RuntimeConvolution convolution_;                         // of width 0: empty
  std::vector<WeightMatrix> input_gates_, recurrence_gates_;  // H of [V, V]
};

std::unique_ptr<RuntimeMixer> NewLru(const ModelConfig& layer,
                                     MixerTensors& tensors) {
  return std::make_unique<Lru>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> lru::RuntimeMixers() {
  return {{"rg-lru", nullptr, NewLru}};
}

}  // namespace tarn::mixers
