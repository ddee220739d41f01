// torch.ops.tarn.state_space_step_: a token of Mamba-2 on a state [B, H, P, N]
// in place, as mamba_ssm keeps it. The state is read and written once, where
// the recurrence of values and a copy of its result would do so three times;
// and a token takes one call of an operator, where its parts took thirty.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/decay/decay_attention.h"
#include "kernels/row_product/row_product.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::ops {
namespace state_space_library {
namespace {

using T = at::Tensor;
using Maybe = std::optional<at::Tensor>;

constexpr char kOp[] = "state_space_step_";

// Reads of so many pairs of a row and a group by themselves, each bound by the
// transfer of its states; torch's batched product for more.
constexpr int64_t kFewReads = 8;
// State entries below which one worker is fastest, as in ComputeGated.
constexpr int64_t kLeastEntries = 1 << 18;

void Check(const T& state, const T& x, const T& dt, const T& A, const T& B,
           const T& C, const Maybe& D, const Maybe& dt_bias) {
  const Wants wants(kOp, state);
  if (state.dim() != 4 || !state.is_contiguous()) {
    throw ShapeError(wants.Argument("state"), "4 axes, contiguous",
                     SizesText(state.sym_sizes()));
  }
  const c10::SymInt batch = state.size(0), heads = state.size(1);
  const c10::SymInt width = state.size(2), states = state.size(3);
  const c10::SymInt groups = B.dim() == 3 ? B.size(1) : heads;
  const auto want = [&](const char* name, const T& given,
                        const std::vector<c10::SymInt>& sizes) {
    wants.Sizes(name, given, sizes);
    wants.DType(name, given, at::kFloat);
    wants.Device(name, given);
  };
  wants.DType("state", state, at::kFloat);
  want("x", x, {batch, heads, width});
  want("dt", dt, {batch, heads});
  want("A", A, {heads});
  if (groups == 0 ? heads != 0 : heads % groups != 0) {
    throw ShapeError(wants.Argument("B"),
                     "groups that divide " + std::to_string(state.size(1)),
                     SizesText(B.sym_sizes()));
  }
  want("B", B, {batch, groups, states});
  want("C", C, {batch, groups, states});
  if (D.has_value()) want("D", *D, {heads});
  if (dt_bias.has_value()) want("dt_bias", *dt_bias, {heads});
}

// [B, H, P]: what C reads from the states of each head.
T Products(const T& state, const T& C) {
  const int64_t batch = state.size(0), groups = C.size(1);
  const int64_t heads = state.size(1), width = state.size(2);
  const int64_t outputs = groups == 0 ? 0 : heads / groups * width;
  return at::matmul(state.view({batch, groups, outputs, state.size(3)}),
                    C.unsqueeze(-1))
      .view({batch, heads, width});
}

// The same, bound by the transfer of the states where there are few rows.
T Read(const T& state, const T& C, TorchExecutor& executor) {
  const int64_t batch = state.size(0), groups = C.size(1), N = state.size(3);
  if (batch * groups > kFewReads) return Products(state, C);
  const int64_t outputs = state.size(1) / groups * state.size(2);
  const T queries = C.contiguous();
  T out = EmptyDense({batch, state.size(1), state.size(2)});
  for (int64_t i = 0; i < batch * groups; ++i) {
    RowProductMap map;
    map.weight = state.const_data_ptr<float>() + i * outputs * N;
    map.outputs = outputs;
    map.y = out.data_ptr<float>() + i * outputs;
    RowProduct(queries.const_data_ptr<float>() + i * N, 1, N, &map, 1,
               executor);
  }
  return out;
}

// The token's change of a state with values first, and what C reads from it.
struct Token {
  T written, gates, keys;  // [B, H, P], [B, H], [B, H, N]

  Token(const T& state, const T& x, const T& dt, const T& A, const T& B,
        const Maybe& dt_bias, bool dt_softplus) {
    const int64_t heads = state.size(1), groups = B.size(1);
    T steps;
    if (dt_softplus) {
      DecayGateArguments gate;
      gate.x = dt;
      gate.bias = dt_bias;
      gate.second = true;
      steps = DecayGate(gate).second;
    } else {
      steps = dt_bias.has_value() ? dt + *dt_bias : dt;
    }
    written = x * steps.unsqueeze(-1);
    gates = steps * A;
    keys = groups <= 1 ? B.expand({B.size(0), heads, B.size(2)})
                       : B.repeat_interleave(heads / groups, 1);
  }
};

T AddInputs(T out, const T& x, const Maybe& D) {
  return D.has_value() ? out.add_(x * D->unsqueeze(-1)) : out;
}

T Composed(T& state, const T& x, const T& dt, const T& A, const T& B,
           const T& C, const Maybe& D, const Maybe& dt_bias, bool dt_softplus) {
  return WithTorchErrors([&] {
    Check(state, x, dt, A, B, C, D, dt_bias);
    const Token token(state, x, dt, A, B, dt_bias, dt_softplus);
    state.mul_(token.gates.exp().unsqueeze(-1).unsqueeze(-1));
    state.add_(token.written.unsqueeze(-1) * token.keys.unsqueeze(2));
    return AddInputs(Products(state, C), x, D);
  });
}

T Cpu(T& state, const T& x, const T& dt, const T& A, const T& B, const T& C,
      const Maybe& D, const Maybe& dt_bias, bool dt_softplus) {
  if (ComposedForced() || state.numel() == 0) {
    return Composed(state, x, dt, A, B, C, D, dt_bias, dt_softplus);
  }
  return WithTorchErrors([&] {
    Check(state, x, dt, A, B, C, D, dt_bias);
    const Token token(state, x, dt, A, B, dt_bias, dt_softplus);
    // A state with values first is one whose keys are what is written and whose
    // values are the keys; what the step reads from it is of no use.
    T written = token.written.unsqueeze(1), keys = token.keys.unsqueeze(1);
    T gates = token.gates.unsqueeze(1).unsqueeze(-1);
    T unread = EmptyDense(keys.sizes());
    RecurrentInputs in;
    in.queries = in.keys = ViewOf("x", written);
    in.values = ViewOf("B", keys);
    in.gates = ViewOf("dt", gates);
    float* states = state.numel() == 0 ? nullptr : state.data_ptr<float>();
    TorchExecutor executor(
        state.numel() < kLeastEntries ? 1 : std::numeric_limits<int>::max());
    DecayAttentionStep({}, in, {.state = states, .next = states},
                       ViewOf("unread", unread), executor);
    return AddInputs(Read(state, C, executor), x, D);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "state_space_step_(Tensor(a!) state, Tensor x, Tensor dt, Tensor A, "
      "Tensor B, Tensor C, Tensor? D, Tensor? dt_bias, bool dt_softplus) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) { m.impl("state_space_step_", TORCH_FN(Cpu)); }
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("state_space_step_", TORCH_FN(Composed));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("state_space_step_",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace state_space_library
}  // namespace tarn::ops
