// Schemas of torch.ops.tarn.*. The forms for each dispatch key register
// themselves: CPU and Meta in linear/linear_attention.cc, the rest in
// linear/autograd.cc.
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <string>

#include "kernels/simd_target.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/ops.h"

// The Python package reads this text from the file before it loads the library:
// a library built against another torch fails with one clear line.
extern "C" __attribute__((used, visibility("default")))
const char tarn_built_with_torch[] = "TARN_BUILT_WITH_TORCH=" TORCH_VERSION ";";

namespace tarn::ops {
namespace {

std::string SimdTarget() { return SimdTargetName(); }

void UseSimdTargetFromEnvironment() {
  WithTorchErrors([] { ApplySimdTargetFromEnvironment(); });
}

TORCH_LIBRARY(tarn, m) {
  m.def(
      "linear_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? key_mask=None, Tensor? key_lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_S=None, "
      "Tensor? initial_z=None, bool causal=True, SymInt causal_offset=0, "
      "str feature_map='elu1', str denominator='exact', float eps=1e-6, "
      "float scale=1.0, int chunk_size=0, bool return_state=False) -> "
      "(Tensor out, Tensor final_S, Tensor final_z, Tensor denominators)");
  m.def(
      "linear_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? key_mask, Tensor? key_lengths, Tensor? cu_seqlens, "
      "Tensor? initial_S, Tensor? initial_z, Tensor out, Tensor denominators, "
      "Tensor grad_out, Tensor? grad_final_S, Tensor? grad_final_z, "
      "bool causal=True, SymInt causal_offset=0, str feature_map='elu1', "
      "str denominator='exact', float eps=1e-6, float scale=1.0, "
      "int chunk_size=0) -> (Tensor grad_queries, Tensor grad_keys, "
      "Tensor grad_values, Tensor grad_initial_S, Tensor grad_initial_z)");
  m.def(
      "linear_attention_step(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? state_S=None, Tensor? state_z=None, str feature_map='elu1', "
      "str denominator='exact', float eps=1e-6, float scale=1.0) -> "
      "(Tensor out, Tensor S, Tensor z)");
  m.def("simd_target() -> str", &SimdTarget);
  m.def("use_simd_target_from_environment() -> ()",
        &UseSimdTargetFromEnvironment);
}

}  // namespace

at::Tensor LinearAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values,
                           const LinearAttentionOptions& options,
                           const std::optional<at::Tensor>& key_mask) {
  Operands in;
  in.queries = queries;
  in.keys = keys;
  in.values = values;
  in.key_mask = key_mask;
  Settings settings;
  settings.causal = options.causal;
  settings.causal_offset = options.causal_offset;
  settings.feature_map = Name(options.feature_map);
  settings.denominator = Name(options.denominator);
  settings.eps = options.eps;
  settings.scale = options.scale;
  settings.chunk_size = options.chunk_size;
  return std::get<0>(CallForward(in, settings, /*return_state=*/false));
}

}  // namespace tarn::ops
