#include "torch_nn/mixers/softmax/form_parts.h"

namespace tarn::nn {

torch::Tensor RootNorm(const torch::Tensor& x, const torch::Tensor& weight,
                       double eps) {
  ops::GatedNormCall call;
  call.x = x;
  call.weight = weight;
  call.eps = eps;
  return ops::GatedNorm(call);
}

torch::Tensor RotateFirst(const torch::Tensor& x, int64_t width,
                          const RotaryTable& rotary) {
  if (!rotary.defined() || width == x.size(3)) return Rotate(x, rotary);
  const auto parts = x.split_with_sizes({width, x.size(3) - width}, 3);
  return torch::cat({Rotate(parts[0].contiguous(), rotary), parts[1]}, 3);
}

ops::SoftmaxOptions OptionsOf(const SoftmaxForm& form,
                              const torch::Tensor& sinks, double dropout) {
  ops::SoftmaxOptions options;
  options.softmax_temp = form.scale;
  options.softcap = form.softcap;
  options.dropout = ops::DrawDropout(dropout);
  if (sinks.defined()) options.sinks = sinks;
  return options;
}

torch::Tensor RegisterNorm(torch::nn::Module& module, const char* name,
                           int64_t width) {
  return module
      .register_module(name, std::make_shared<torch::nn::Module>(name))
      ->register_parameter("weight", torch::ones({width}));
}

torch::nn::Linear RegisterLinear(torch::nn::Module& module, const char* name,
                                 int64_t rows, int64_t columns, bool bias) {
  return module.register_module(
      name,
      torch::nn::Linear(torch::nn::LinearOptions(columns, rows).bias(bias)));
}

}  // namespace tarn::nn
