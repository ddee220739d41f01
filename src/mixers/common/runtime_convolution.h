// The short convolution in front of a recurrence, over the segments of a block.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/short_convolution/short_convolution.h"
#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

/// The tensors "convolution.weight" [C, W] and, `with_bias`,
/// "convolution.bias" [C] of a mixer. Immutable once made.
class RuntimeConvolution {
 public:
  RuntimeConvolution() = default;
  RuntimeConvolution(
      MixerTensors& tensors, int64_t channels, int64_t width, bool with_bias,
      ConvolutionActivation activation = ConvolutionActivation::kSilu);

  /// to = activation(convolution(from)), C columns of every row. The window of
  /// a segment, tensor number `tensor` of its layer's state, advances.
  void Run(MixerBlock& block, int64_t layer, int64_t tensor, const Rows& from,
           const Rows& to) const;
  /// The same for some channels of a block of one row.
  void Step(const MixerBlock& block, int64_t layer, int64_t tensor,
            const Rows& from, const Rows& to, StepColumns channels) const;

 private:
  TensorView View(const Segment& segment, const Rows& rows) const;
  /// A call over a segment's rows after its window.
  ShortConvolutionInputs Call(const Segment& segment, const Rows& from,
                              const float* window) const;
  int64_t channels_ = 0, width_ = 0;
  ConvolutionActivation activation_ = ConvolutionActivation::kSilu;
  std::vector<float> filters_, bias_;
};

}  // namespace tarn::mixers
