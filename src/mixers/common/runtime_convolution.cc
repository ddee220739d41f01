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
    float* window = segment.state->Tensor(layer, tensor);
    ShortConvolutionForward(Call(segment, from, window), View(segment, to),
                            window, executor);
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

void RuntimeConvolution::Step(const MixerBlock& block, int64_t layer,
                              int64_t tensor, const Rows& from, const Rows& to,
                              StepColumns channels) const {
  for (const Segment& segment : block.segments) {
    float* window = segment.state->Tensor(layer, tensor);
    ShortConvolutionChannels(Call(segment, from, window), View(segment, to),
                             window, channels.begin, channels.count);
  }
}

TensorView RuntimeConvolution::View(const Segment& segment,
                                    const Rows& rows) const {
  return HeadView(rows[segment.row], segment.count, rows.stride, channels_);
}

ShortConvolutionInputs RuntimeConvolution::Call(const Segment& segment,
                                                const Rows& from,
                                                const float* window) const {
  ShortConvolutionInputs in;
  in.inputs = View(segment, from);
  in.weights = filters_.data();
  in.bias = bias_.empty() ? nullptr : bias_.data();
  in.width = width_;
  in.activation = activation_;
  in.initial_state = window;
  return in;
}

}  // namespace tarn::mixers
