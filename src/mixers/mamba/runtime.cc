#include "mixers/mamba/runtime.h"

#include <algorithm>
#include <cmath>

#include "kernels/gate_rows/gate_rows.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/swiglu/swiglu.h"
#include "mixers/common/runtime_attention.h"
#include "mixers/common/runtime_convolution.h"
#include "mixers/mamba/form.h"

namespace tarn::mixers {
namespace {

enum MambaTensor : int64_t { kScanState, kScanWindow };  // of the spec's state

// Channels of a task. They do not depend on one another, and a kernel takes as
// many at a time, so that any cut gives the same bits. A step's share of them
// is whole panels of a product.
constexpr int64_t kScanShare = WeightMatrix::kPanel;

// Columns of `in`: [C] values, [C] gates. Columns of `extra`: [C] values after
// the convolution, [C] steps, then [rank] low-rank steps, [N] keys, [N]
// queries.
class Mamba final : public RuntimeMixer {
 public:
  Mamba(const ModelConfig& layer, MixerTensors& tensors)
      : s_(MambaSizesOf(layer)),
        dt_bias_(tensors.Vector("dt_bias")),
        rates_(tensors.Vector("A_log")),
        skip_(tensors.Vector("D")) {
    for (float& rate : rates_) rate = -std::exp(rate);
    if (s_.width > 0) {
      convolution_ = RuntimeConvolution(tensors, s_.channels, s_.width,
                                        /*with_bias=*/true);
    }
    in_ = tensors.Stack({"value_projection", "gate_projection"},
                        {s_.channels, s_.channels}, s_.d_model, s_.in_bias);
    select_ = tensors.Stack(
        {"decay_down_projection", "key_projection", "query_projection"},
        {s_.rank, s_.states, s_.states}, s_.channels, /*biases=*/false);
    steps_up_ = tensors.Stack({"decay_up_projection"}, {s_.channels}, s_.rank,
                              /*biases=*/false);
    if (s_.selection_norm) {
      steps_norm_ = tensors.Vector("decay_down_norm.weight");
      key_norm_ = tensors.Vector("key_norm.weight");
      query_norm_ = tensors.Vector("query_norm.weight");
    }
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.channels,
                         s_.out_bias);
  }

  int64_t bytes() const override {
    return RuntimeMixer::bytes() + select_.bytes() + steps_up_.bytes();
  }
  int64_t row_floats() const override {
    return 2 * s_.channels + s_.selected();
  }

  // Everything around the scan treats each row separately; the scan is a task
  // for each sequence and share of channels.
  void Mix(MixerBlock& block, int64_t layer) const override {
    Convolve(block, layer);
    Multiply(block, Values(block), select_, Selected(block));
    if (s_.selection_norm) {
      block.ForRows(4 * s_.selected(),
                    [&](int64_t row) { NormSelected(block, row); });
    }
    Multiply(block, Selected(block), steps_up_, Steps(block));
    block.ForRows(2 * s_.channels, [&](int64_t row) {
      MakeSteps(block, row, {0, s_.channels});
    });
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t cuts = (s_.channels + kScanShare - 1) / kScanShare;
    // About one state entry a nanosecond: each takes an exponential.
    block.ForTasks(
        segments * cuts,
        kScanShare * s_.states * ((block.rows() + segments - 1) / segments),
        [&](int64_t task, int) {
          Scan(block, block.segments[static_cast<size_t>(task / cuts)], layer,
               task % cuts * kScanShare);
        });
    block.ForRows(4 * s_.channels, [&](int64_t row) {
      Gate(block, row, {0, s_.channels});
    });
  }

  // The convolution; what the values are mapped to; its norms, where it has
  // them; then steps, scan and gate of some channels, a panel of `steps_up_`.
  int phases() const override { return s_.selection_norm ? 4 : 3; }
  int64_t units(int phase) const override {
    if (phase == 1) return PanelUnits({&select_});
    if (phase == 2 && s_.selection_norm) return 1;
    return ColumnUnits(s_.channels, kScanShare);
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    const StepColumns own = ColumnsOf(s_.channels, kScanShare, share);
    const int64_t rows = block.rows();
    if (share.phase == 0) {
      if (s_.width > 0) {
        convolution_.Step(block, share.layer, kScanWindow, block.in,
                          Values(block), own);
      } else {
        for (int64_t row = 0; row < rows; ++row) {
          SiluRow(block.in[row] + own.begin, own.count,
                  Values(block)[row] + own.begin);
        }
      }
    } else if (share.phase == 1) {
      RunProducts({{.w = &select_, .x = Values(block), .y = Selected(block)}},
                  share);
    } else if (share.phase + 1 < phases()) {
      for (int64_t row = 0; row < rows; ++row) NormSelected(block, row);
    } else {
      RunProducts({{.w = &steps_up_, .x = Selected(block), .y = Steps(block)}},
                  share);
      for (int64_t row = 0; row < rows; ++row) MakeSteps(block, row, own);
      for (const Segment& segment : block.segments) {
        for (int64_t unit = share.begin; unit < share.end; ++unit) {
          Scan(block, segment, share.layer, unit * kScanShare);
        }
      }
      for (int64_t row = 0; row < rows; ++row) Gate(block, row, own);
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    if (phase == 1) return select_.Panel(unit);
    if (phase + 1 < phases()) return nullptr;
    return block.segments.front().state->Tensor(layer, kScanState) +
           unit * kScanShare * s_.states;
  }

 private:
  // u, dt and what u is mapped to, as rows.
  Rows Values(const MixerBlock& block) const { return block.extra; }
  Rows Steps(const MixerBlock& block) const {
    return {block.extra.data + s_.channels, block.extra.stride};
  }
  Rows Selected(const MixerBlock& block) const {
    return {block.extra.data + 2 * s_.channels, block.extra.stride};
  }

  static void Multiply(MixerBlock& block, const Rows& from,
                       const WeightMatrix& w, const Rows& to) {
    PackedMatMul(from.data, from.stride, block.rows(), w, {to.data, to.stride},
                 block.executor());
  }

  // u = silu(convolution(values)) of every segment, after its window.
  void Convolve(MixerBlock& block, int64_t layer) const {
    if (s_.width == 0) {
      block.ForRows(2 * s_.channels, [&](int64_t row) {
        SiluRow(block.in[row], s_.channels, Values(block)[row]);
      });
      return;
    }
    convolution_.Run(block, layer, kScanWindow, block.in, Values(block));
  }

  void Norm(float* x, int64_t width, const std::vector<float>& weight) const {
    RmsNormRow(x, width, weight.data(), static_cast<float>(s_.selection_eps),
               x);
  }

  void NormSelected(const MixerBlock& block, int64_t row) const {
    float* steps = Selected(block)[row];
    Norm(steps, s_.rank, steps_norm_);
    Norm(steps + s_.rank, s_.states, key_norm_);
    Norm(steps + s_.rank + s_.states, s_.states, query_norm_);
  }

  void MakeSteps(const MixerBlock& block, int64_t row, StepColumns own) const {
    float* steps = Steps(block)[row] + own.begin;
    SoftplusRow(steps, dt_bias_.data() + own.begin, own.count, steps);
  }

  // out = out silu(gate).
  void Gate(const MixerBlock& block, int64_t row, StepColumns own) const {
    SerialExecutor serial;
    float* out = block.out[row] + own.begin;
    SwigluForward({}, 1, own.count, block.in[row] + s_.channels + own.begin,
                  out, out, serial);
  }

  // The rows of a segment over the states of a share of channels.
  void Scan(const MixerBlock& block, const Segment& segment, int64_t layer,
            int64_t begin) const {
    const int64_t count = std::min(kScanShare, s_.channels - begin);
    const auto columns = [](const Rows& rows, int64_t at) {
      return Rows{rows.data + at, rows.stride};
    };
    SelectiveScanInputs in;
    in.inputs = View(columns(Values(block), begin), segment, count);
    in.steps = View(columns(Steps(block), begin), segment, count);
    in.rates = rates_.data() + begin * s_.states;
    in.keys = View(columns(Selected(block), s_.rank), segment, s_.states);
    in.queries =
        View(columns(Selected(block), s_.rank + s_.states), segment, s_.states);
    in.skip = skip_.data() + begin;
    float* state = segment.state->Tensor(layer, kScanState) + begin * s_.states;
    in.initial_state = state;
    SelectiveScanOutputs outputs;
    outputs.out = View(columns(block.out, begin), segment, count);
    outputs.final_state = state;
    SerialExecutor serial;
    SelectiveScanForward(in, outputs, serial);
  }

  static TensorView View(const Rows& rows, const Segment& segment,
                         int64_t width) {
    return HeadView(rows[segment.row], segment.count, rows.stride, width);
  }

  const MambaSizes s_;
  const std::vector<float> dt_bias_;                       // [C]
  std::vector<float> rates_;                               // A [C, N]
  const std::vector<float> skip_;                          // D [C]
  std::vector<float> steps_norm_, key_norm_, query_norm_;  // or empty
  RuntimeConvolution convolution_;                         // of width 0: empty
  WeightMatrix select_;                                    // [rank + 2 N, C]
  WeightMatrix steps_up_;                                  // [C, rank]
};

std::unique_ptr<RuntimeMixer> NewMamba(const ModelConfig& layer,
                                       MixerTensors& tensors) {
  return std::make_unique<Mamba>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> mamba::RuntimeMixers() {
  return {{"mamba1", nullptr, NewMamba}};
}

}  // namespace tarn::mixers
