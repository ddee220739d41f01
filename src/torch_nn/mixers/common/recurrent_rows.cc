#include "torch_nn/mixers/common/recurrent_rows.h"

#include <cmath>

#include "torch_ops/common/tensors.h"
#include "torch_ops/convolution/convolution.h"

namespace tarn::nn {
namespace {

constexpr double kLeastStep = 1e-3, kLargestStep = 0.1, kStepFloor = 1e-4;

}  // namespace

torch::ScalarType WideType(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor WideRows(const torch::Tensor& x) { return x.to(WideType(x)); }

torch::Tensor AsHeads(const torch::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, x.size(2) / heads});
}

torch::Tensor DrawStepBias(int64_t count) {
  const torch::Tensor steps =
      torch::empty({count})
          .uniform_(std::log(kLeastStep), std::log(kLargestStep))
          .exp()
          .clamp_min(kStepFloor);
  return steps + torch::log(-torch::expm1(-steps));
}

ConvolutionFilters::ConvolutionFilters(torch::nn::Module& owner,
                                       int64_t channels, int64_t width,
                                       bool with_bias) {
  const auto module = owner.register_module(
      "convolution", std::make_shared<torch::nn::Module>("convolution"));
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  const auto draw = [&](const char* name, std::vector<int64_t> sizes) {
    return module->register_parameter(
        name, torch::empty(sizes).uniform_(-bound, bound));
  };
  weight = draw("weight", {channels, width});
  if (with_bias) bias = draw("bias", {channels});
}

torch::Tensor Convolve(const ConvolutionFilters& filters,
                       const torch::Tensor& rows, const torch::Tensor& lengths,
                       torch::Tensor& window, const char* activation) {
  ops::ConvolutionCall call;
  call.activation = activation;
  call.inputs = rows;
  call.weights = filters.weight;
  call.bias = ops::NoneOr(filters.bias);
  call.lengths = ops::NoneOr(lengths);
  if (window.defined()) {
    call.initial_state = window;
    call.return_state = true;
  }
  const auto [out, state] = ops::ShortConvolution(call);
  if (window.defined()) window = state;
  return out;
}

torch::Tensor WindowBefore(const torch::Tensor& rows, int64_t width,
                           const SequenceCut& cut) {
  const torch::Tensor before = WideRows(cut.EarlierRows(rows, width - 1));
  const int64_t missing = width - 1 - before.size(1);
  if (missing == 0) return before;
  return torch::cat(
      {torch::zeros({rows.size(0), missing, rows.size(2)}, before.options()),
       before},
      1);
}

}  // namespace tarn::nn
