// ops::GatedNorm as C++ modules call it, against its equations in torch's own
// operators.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

#include "torch_ops/layers/layers.h"

namespace tarn::ops {
namespace gated_norm_test {

at::Tensor Reference(const GatedNormCall& call) {
  at::Tensor gate = torch::ones({}, call.x.options());
  if (call.gate.has_value()) {
    gate = torch::sigmoid(*call.gate);
    if (call.activation == "silu") gate = *call.gate * gate;
  }
  at::Tensor u = call.gate_first ? call.x * gate : call.x;
  if (call.centred) u = u - u.mean({-1}, /*keepdim=*/true);
  const at::Tensor squares = u.square().mean({-1}, /*keepdim=*/true);
  at::Tensor y = u / torch::sqrt(squares + call.eps) * call.weight;
  if (call.bias.has_value()) y = y + *call.bias;
  return call.gate_first ? y : y * gate;
}

GatedNormCall MakeCall(bool gated, bool first, bool centred, bool by_group) {
  torch::manual_seed(3);
  const auto leaf = [](at::IntArrayRef sizes) {
    return torch::randn(sizes, torch::kFloat64).requires_grad_();
  };
  GatedNormCall call;
  call.x = leaf({2, 5, 3, 20});
  call.weight = by_group ? leaf({3, 20}) : leaf({20});
  if (centred) call.bias = by_group ? leaf({3, 20}) : leaf({20});
  if (gated) call.gate = leaf({2, 5, 3, 20});
  call.activation = by_group ? "sigmoid" : "silu";
  call.gate_first = first;
  call.centred = centred;
  return call;
}

GatedNormCall InFloats(GatedNormCall call) {
  const auto floats = [](const at::Tensor& x) {
    return x.detach().to(torch::kFloat32).requires_grad_();
  };
  call.x = floats(call.x);
  call.weight = floats(call.weight);
  if (call.bias.has_value()) call.bias = floats(*call.bias);
  if (call.gate.has_value()) call.gate = floats(*call.gate);
  return call;
}

std::vector<at::Tensor> Leaves(const GatedNormCall& call) {
  std::vector<at::Tensor> leaves = {call.x, call.weight};
  if (call.bias.has_value()) leaves.push_back(*call.bias);
  if (call.gate.has_value()) leaves.push_back(*call.gate);
  return leaves;
}

TEST(GatedNorm, KernelAndComposedFormEqualTheEquations) {
  for (int n = 0; n < 16; ++n) {
    const bool gated = (n & 1) != 0, first = gated && (n & 2) != 0;
    const GatedNormCall wide =
        MakeCall(gated, first, (n & 4) != 0, (n & 8) != 0);
    const GatedNormCall call = InFloats(wide);
    const at::Tensor wanted = Reference(wide), flow = torch::randn_like(wanted);
    const auto slopes =
        torch::autograd::grad({(wanted * flow).sum()}, Leaves(wide));
    for (const GatedNormCall& given : {wide, call}) {
      const bool kernel = given.x.scalar_type() == torch::kFloat32;
      const double bound = kernel ? 2e-5 : 1e-12;
      const at::Tensor out = GatedNorm(given);
      EXPECT_TRUE(
          torch::allclose(out.to(torch::kFloat64), wanted, bound, bound))
          << n;
      const auto got = torch::autograd::grad(
          {(out * flow.to(out.scalar_type())).sum()}, Leaves(given));
      for (size_t i = 0; i < slopes.size(); ++i) {
        EXPECT_TRUE(torch::allclose(got[i].to(torch::kFloat64), slopes[i],
                                    bound, bound))
            << n << " argument " << i;
      }
    }
  }
}

TEST(GatedNorm, ErrorsArriveAsTorchs) {
  GatedNormCall call = InFloats(MakeCall(true, false, false, false));
  call.gate = call.gate->detach().to(torch::kBFloat16);
  EXPECT_THROW(GatedNorm(call), c10::TypeError);
  call.gate = {};
  call.activation = "relu";
  EXPECT_THROW(GatedNorm(call), c10::ValueError);
}

}  // namespace gated_norm_test
}  // namespace tarn::ops
