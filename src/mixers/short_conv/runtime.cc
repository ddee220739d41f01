#include "mixers/short_conv/runtime.h"

#include "mixers/common/runtime_convolution.h"
#include "mixers/short_conv/form.h"

namespace tarn::mixers {
namespace {

constexpr int64_t kConvolutionWindow = 0;  // of the spec's state

// Columns of `in`: [C] queries, [C] keys, [C] values, which the keys multiply
// in place.
class ShortConv final : public RuntimeMixer {
 public:
  ShortConv(const ModelConfig& layer, MixerTensors& tensors)
      : s_(ShortConvSizesOf(layer)),
        convolution_(tensors, s_.channels, s_.width, s_.biased,
                     ConvolutionActivation::kNone) {
    in_ = tensors.Stack(
        {"query_projection", "key_projection", "value_projection"},
        {s_.channels, s_.channels, s_.channels}, s_.d_model, s_.biased);
    out_ =
        tensors.Stack({"out_projection"}, {s_.d_model}, s_.channels, s_.biased);
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    const int64_t n = s_.channels;
    block.ForRows(n / 4, [&](int64_t row) { MakeValues(block, row, {0, n}); });
    convolution_.Run(block, layer, kConvolutionWindow, Values(block),
                     block.out);
    block.ForRows(n / 4, [&](int64_t row) { Gate(block, row, {0, n}); });
  }

  int64_t units(int) const override { return ColumnUnits(s_.channels, kShare); }
  void Step(MixerBlock& block, const StepShare& share) const override {
    const StepColumns own = ColumnsOf(s_.channels, kShare, share);
    for (int64_t row = 0; row < block.rows(); ++row) {
      MakeValues(block, row, own);
    }
    convolution_.Step(block, share.layer, kConvolutionWindow, Values(block),
                      block.out, own);
    for (int64_t row = 0; row < block.rows(); ++row) Gate(block, row, own);
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t unit) const override {
    return block.segments.front().state->Tensor(layer, kConvolutionWindow) +
           unit * kShare;
  }

 private:
  static constexpr int64_t kShare = 64;  // channels; none depends on another

  Rows Values(const MixerBlock& block) const {
    return {block.in.data + 2 * s_.channels, block.in.stride};
  }
  void MakeValues(const MixerBlock& block, int64_t row, StepColumns own) const {
    const float* keys = block.in[row] + s_.channels + own.begin;
    float* values = Values(block)[row] + own.begin;
    for (int64_t c = 0; c < own.count; ++c) values[c] *= keys[c];
  }
  void Gate(const MixerBlock& block, int64_t row, StepColumns own) const {
    const float* queries = block.in[row] + own.begin;
    float* out = block.out[row] + own.begin;
    for (int64_t c = 0; c < own.count; ++c) out[c] *= queries[c];
  }

  const ShortConvSizes s_;
  const RuntimeConvolution convolution_;
};

std::unique_ptr<RuntimeMixer> NewShortConv(const ModelConfig& layer,
                                           MixerTensors& tensors) {
  return std::make_unique<ShortConv>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> short_conv::RuntimeMixers() {
  return {{"short-conv", nullptr, NewShortConv}};
}

}  // namespace tarn::mixers
