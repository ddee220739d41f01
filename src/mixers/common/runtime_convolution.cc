#include "mixers/common/runtime_convolution.h"

#include "mixers/common/runtime_attention.h"

namespace tarn::mixers {

RuntimeConvolution::RuntimeConvolution(MixerTensors& tensors, int64_t channels,
                                       int64_t width, bool with_bias,
                                       ConvolutionActivation activation)
    : channels_(channels),
      width_(width),
      activation_(activation),
      filters_(tensors.Vector("convolution.weight")) {
  if (with_bias) bias_ = tensors.Vector("convolution.bias");
}

void RuntimeConvolution::Run(MixerBlock& block, int64_t layer, int64_t tensor,
                             const Rows& from, const Rows& to) const {
  const auto one = [&](const Segment& segment, Executor& executor) {
    const auto view = [&](const Rows& rows) {
      return HeadView(rows[segment.row], segment.count, rows.stride, channels_);
    };
    ShortConvolutionInputs in;
    in.inputs = view(from);
    in.weights = filters_.data();
    in.bias = bias_.empty() ? nullptr : bias_.data();
    in.width = width_;
    in.activation = activation_;
    float* window = segment.state->Tensor(layer, tensor);
    in.initial_state = window;
    ShortConvolutionForward(in, view(to), window, executor);
  };
  const int64_t segments = static_cast<int64_t>(block.segments.size());
  if (segments == 1) {
    one(block.segments.front(), block.executor());
    return;
  }
  block.ForTasks(segments, channels_ * block.rows() / segments,
                 [&](int64_t i, int) {
                   SerialExecutor serial;
                   one(block.segments[static_cast<size_t>(i)], serial);
                 });
}

}  // namespace tarn::mixers
