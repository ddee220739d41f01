// Which arguments of an operator are cast under torch's autocast, and to what.
// Products take the lower precision that autocast asks for; what sums over a
// sequence (states, statistics, biases of scores) and the losses stay float32,
// as the operators accumulate in float32 for inputs of any type.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <string>

namespace tarn::ops {
namespace {

struct Rule {
  const char* op;
  bool lower;  // to autocast's dtype, else to float32
  std::initializer_list<const char*> arguments;
};

// In residual_norm only x and residual could be halves; its parameters are
// float32 masters, and a residual stream needs the precision.
const Rule kRules[] = {
    {"linear_attention", true, {"queries", "keys", "values"}},
    {"linear_attention_step", true, {"queries", "keys", "values"}},
    {"linear_attention_packed", true, {"packed"}},
    {"mapped_linear_attention", true, {"queries", "keys", "values"}},
    {"mapped_linear_attention_step", true, {"queries", "keys", "values"}},
    {"causal_dot_product", true, {"queries", "keys", "values"}},
    {"softmax_attention", true, {"queries", "keys", "values"}},
    {"softmax_attention_weights", true, {"queries", "keys", "values"}},
    {"exact_topk_indices", true, {"queries", "keys", "values"}},
    {"exact_topk_attention", true, {"queries", "keys", "values"}},
    {"clustered_attention", true, {"queries", "keys", "values"}},
    {"reformer_attention", true, {"queries", "values"}},
    {"decay_attention", true, {"queries", "keys", "values"}},
    {"delta_attention", true, {"queries", "keys", "values"}},
    {"dplr_attention", true, {"queries", "keys", "values", "reads", "writes"}},
    {"state_space_step_", false, {}},
    {"short_convolution", true, {"inputs"}},
    {"elementwise_recurrence", true, {"inputs"}},
    {"rg_lru", true, {"inputs", "input_gates", "recurrence_gates"}},
    {"rg_lru_gates", true, {"inputs", "input_gates", "recurrence_gates"}},
    {"mlstm", true, {"queries", "keys", "values"}},
    {"mlstm_gates", false, {}},
    {"mlstm_read", false, {"read"}},
    {"selective_scan", true, {"inputs", "keys", "queries"}},
    {"aft_full", true, {"queries", "keys", "values", "position_bias"}},
    {"aft_simple", true, {"queries", "keys", "values"}},
    {"affine", true, {"x", "weight", "bias"}},
    {"feed_forward", true, {"x", "weight1", "bias1", "weight2"}},
    {"swiglu_feed_forward", true, {"x", "weight1", "weight2", "weight3"}},
    {"moe_experts", true, {"x", "weights", "weight1", "weight2", "weight3"}},
    {"moe_router", false, {"logits"}},
    {"residual_norm", false, {"x", "residual", "bias", "gamma", "beta"}},
    {"gated_norm", false, {"x", "gate"}},
    {"logistic_mixture_loss", false, {"params"}},
};

// Casts the arguments at these places of the stack, then calls the operator,
// which no longer sees autocast.
class Casting : public c10::OperatorKernel {
 public:
  Casting(c10::DeviceType device, const Rule& rule)
      : device_(device), rule_(rule) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const auto& arguments = op.schema().arguments();
    const at::ScalarType dtype =
        rule_.lower ? at::autocast::get_autocast_dtype(device_) : at::kFloat;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool named = std::any_of(
          rule_.arguments.begin(), rule_.arguments.end(),
          [&](const char* name) { return arguments[i].name() == name; });
      c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
      if (!named || !value.isTensor()) continue;
      value = at::autocast::cached_cast(dtype, value.toTensor(), device_);
    }
    op.callBoxed(stack);
  }

 private:
  c10::DeviceType device_;
  const Rule& rule_;
};

void Register(torch::Library& m, c10::DeviceType device) {
  for (const Rule& rule : kRules) {
    m.impl(rule.op, torch::CppFunction::makeFromBoxedFunctor(
                        std::make_unique<Casting>(device, rule)));
  }
}

TORCH_LIBRARY_IMPL(tarn, AutocastCPU, m) { Register(m, at::kCPU); }
TORCH_LIBRARY_IMPL(tarn, AutocastCUDA, m) { Register(m, at::kCUDA); }
TORCH_LIBRARY_IMPL(tarn, AutocastXPU, m) { Register(m, at::kXPU); }
TORCH_LIBRARY_IMPL(tarn, AutocastMPS, m) { Register(m, at::kMPS); }

}  // namespace
}  // namespace tarn::ops
