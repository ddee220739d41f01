// What every form of the linear-attention operators shares: the arguments of a
// call as one value, its dispatch, and the way from torch tensors to the views
// and options of the kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "core/error.h"
#include "kernels/linear_attention/linear_attention.h"
#include "torch_ops/common/forms.h"

namespace tarn::ops {

using OptionalTensor = std::optional<at::Tensor>;

/// Tensors of one call; shapes as in LinearAttentionInputs.
struct Operands {
  at::Tensor queries, keys, values;
  OptionalTensor key_mask;              // [B, S] bool
  OptionalTensor key_lengths;           // [B] int32 or int64
  OptionalTensor cu_seqlens;            // [N + 1] int32 or int64
  OptionalTensor initial_S, initial_z;  // [N, HV, K, V], [N, HV, K]
};

/// Everything else, in the words of the operator's schema. The offset may be
/// symbolic while a compiler traces.
struct Settings {
  bool causal = true;
  c10::SymInt causal_offset = 0;
  std::string feature_map = "elu1";
  std::string denominator = "exact";
  double eps = 1e-6;
  double scale = 1.0;
  int64_t chunk_size = 0;
};

/// out [B, T, HV, V], final_S, final_z (both [0] unless asked for) and
/// denominators [B, T, HV].
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
/// Gradients of queries, keys, values, initial_S, initial_z; the last two are
/// [0] without an initial state.
using Gradients =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
/// out [B, HV, V] and the new S, z.
using StepResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// What the gradient reads besides the operands.
struct GradientOperands {
  at::Tensor out, denominators, grad_out;
  OptionalTensor grad_final_S, grad_final_z;
};

/// queries, keys [B, H, K]; values [B, HV, V]; S, z absent: zeros.
struct StepOperands {
  at::Tensor queries, keys, values;
  OptionalTensor state_S, state_z;
};

/// Calls of torch.ops.tarn.* through the dispatcher.
Results CallForward(const Operands& in, const Settings& settings,
                    bool return_state);
Gradients CallBackward(const Operands& in, const GradientOperands& gradients,
                       const Settings& settings);
StepResults CallStep(const StepOperands& in, const Settings& settings);

/// The composed form, from plain torch operators, which run on any device and
/// which autograd follows to any order: chunked, O(T + S) time and memory, sums
/// in float32 (float64 for float64). Every option as in the kernel, but a NaN
/// in a key or value that is not masked spreads over its sequence and head.
Results ComposedLinearAttention(const Operands& in, const Settings& settings,
                                bool return_state);

/// The same for one token.
StepResults ComposedLinearAttentionStep(const StepOperands& in,
                                        const Settings& settings);

/// One token as a sequence of length 1. Throws ShapeError.
Operands AsSequence(const StepOperands& in);

/// phi(x) of the maps that the kernels hold, differentiable to any order.
at::Tensor ElementwiseFeatures(FeatureMap map, const at::Tensor& x);

/// [B, S] bool of kept keys, from key_mask and key_lengths; undefined: all.
at::Tensor KeptKeys(const Operands& in);

/// Runs f; tarn's errors leave it as torch's TypeError (dtypes) or ValueError
/// (the rest), with the message kept.
template <typename F>
auto WithTorchErrors(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const DTypeError& error) {
    C10_THROW_ERROR(TypeError, error.what());
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

/// Throws ArgumentError for an unknown name of a feature map or denominator.
LinearAttentionOptions KernelOptions(const Settings& settings);

/// A view whose last axis is dense; the tensor is copied only where it is not,
/// so `tensor` may be replaced. Throws ShapeError, DTypeError. float64 passes
/// as F32: such views serve shape checks and are never read.
TensorView ViewOf(const char* name, at::Tensor& tensor);

/// A kernel call and the tensors its pointers reach into.
struct KernelCall {
  Operands held;
  LinearAttentionOptions options;
  LinearAttentionInputs inputs;

  int64_t states() const {  // sequences of a packed call, else B
    return inputs.cu_seqlens != nullptr ? inputs.sequences
                                        : inputs.queries.size[0];
  }
};

/// Checks all that LinearAttentionForward checks, and the tensors it does not
/// see. Throws tarn::Error; reads the lengths, no other data.
KernelCall MakeKernelCall(const Operands& in, const Settings& settings);

/// Scratch of a call, 64-byte aligned, from the cache of memory.h.
class Workspace {
 public:
  explicit Workspace(size_t bytes);
  void* data() const;

 private:
  at::Tensor bytes_;
};

/// The kernels on checked calls; `results` hold tensors of the right shapes,
/// which may be views.
void RunForward(const KernelCall& call, Results& results);
void RunBackward(const KernelCall& call, const GradientOperands& gradients,
                 Gradients& results);

}  // namespace tarn::ops
