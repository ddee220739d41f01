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
    block.ForRows(n / 4, [&](int64_t row) {
      const float* keys = block.in[row] + n;
      float* values = block.in[row] + 2 * n;
      for (int64_t c = 0; c < n; ++c) values[c] *= keys[c];
    });
    convolution_.Run(block, layer, kConvolutionWindow,
                     {block.in.data + 2 * n, block.in.stride}, block.out);
    block.ForRows(n / 4, [&](int64_t row) {
      const float* queries = block.in[row];
      float* out = block.out[row];
      for (int64_t c = 0; c < n; ++c) out[c] *= queries[c];
    });
  }

  // Its state is one window of all channels.
  bool one_region() const override { return false; }
  int64_t shares() const override { return 1; }
  void Step(MixerBlock& block, int64_t layer, int64_t begin, int64_t end,
            int) const override {
    if (begin == 0 && end > 0) Mix(block, layer);
  }
  const void* Reads(const SequenceState& state, int64_t layer,
                    int64_t) const override {
    return state.Tensor(layer, kConvolutionWindow);
  }

 private:
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
