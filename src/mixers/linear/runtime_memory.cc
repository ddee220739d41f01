#include "mixers/linear/runtime_memory.h"

#include <algorithm>

#include "kernels/linear_attention/linear_attention.h"
#include "runtime/state/float_runs.h"

namespace tarn::mixers {
namespace {

// Keys whose features are written out at a time.
constexpr int64_t kPiece = 32;

TensorView View(const HeadRows& rows, int64_t width) {
  return {rows.data,
          {1, rows.count, 1, width},
          {0, rows.stride, width},
          DType::kF32};
}

// Without queries the operator only sums its keys.
LinearAttentionInputs KeysOnly(const HeadRows& keys, const HeadRows& values,
                               int64_t width, int64_t d_value) {
  LinearAttentionInputs in;
  in.keys = View(keys, width);
  in.values = View(values, d_value);
  in.queries = in.keys;
  in.queries.size[1] = 0;
  return in;
}

void Sum(LinearAttentionOptions options, LinearAttentionInputs in,
         const float* initial_S, const float* initial_z, float* S, float* z,
         float* workspace) {
  options.causal = false;
  in.initial_S = initial_S;
  in.initial_z = initial_z;
  LinearAttentionOutputs out;
  out.out = in.values;
  out.out.size[1] = 0;
  out.final_S = S;
  out.final_z = z;
  SerialExecutor serial;
  LinearAttentionForward(options, in, out, serial, workspace);
}

int64_t WorkspaceFloats(const LinearForm& form, int64_t width,
                        int64_t d_value) {
  LinearAttentionOptions options = form.options();
  if (form.outside()) options = form.plain_options();
  options.causal = false;
  float unused = 0.0f;
  const HeadRows none = {&unused, 0, 0};
  const size_t bytes = LinearAttentionWorkspaceBytes(
      options, KeysOnly(none, none, width, d_value), 1);
  return PaddedFloats(static_cast<int64_t>(bytes / sizeof(float)));
}

}  // namespace

int64_t BuildLinearMemoryFloats(const LinearForm& form, int64_t d_key,
                                int64_t d_value) {
  const int64_t width = form.outside() ? form.d_feature() : d_key;
  int64_t floats = WorkspaceFloats(form, width, d_value);
  if (form.outside()) {  // features of a piece, and the sums before it
    floats += kPiece * PaddedFloats(width) + PaddedFloats(width * d_value) +
              PaddedFloats(width);
  }
  return floats;
}

void BuildLinearMemory(const LinearForm& form, HeadRows keys, HeadRows values,
                       int64_t d_key, int64_t d_value, float* S, float* z,
                       float* norm_sum, float* scratch) {
  if (!form.outside()) {
    Sum(form.options(), KeysOnly(keys, values, d_key, d_value), nullptr,
        nullptr, S, z, scratch);
    return;
  }
  const int64_t width = form.d_feature();
  float* workspace = scratch;
  float* before_S = workspace + WorkspaceFloats(form, width, d_value);
  float* before_z = before_S + PaddedFloats(width * d_value);
  const HeadRows features = {before_z + PaddedFloats(width),
                             PaddedFloats(width), kPiece};
  std::fill_n(S, width * d_value, 0.0f);
  std::fill_n(z, width, 0.0f);
  float norms = 0.0f;
  for (int64_t begin = 0; begin < keys.count; begin += kPiece) {
    const int64_t count = std::min(kPiece, keys.count - begin);
    for (int64_t i = 0; i < count; ++i) {
      form.Map(keys[begin + i], features[i]);
      if (form.norm_sums()) norms += NormOfRow(features[i], width);
    }
    CopyFloats(S, width * d_value, before_S);
    CopyFloats(z, width, before_z);
    Sum(form.plain_options(),
        KeysOnly({features.data, features.stride, count},
                 {values[begin], values.stride, count}, width, d_value),
        before_S, before_z, S, z, workspace);
  }
  if (form.norm_sums()) *norm_sum = norms;
}

void ReadLinearMemory(const LinearForm& form, const LinearMemory& memory,
                      HeadRows queries, HeadRows out, int64_t d_value,
                      float* scratch) {
  SerialExecutor serial;
  const int64_t width = form.d_feature();
  if (!form.outside()) {
    LinearAttentionRead(form.options(), View(queries, width), memory.S,
                        memory.z, View(out, d_value), serial);
    return;
  }
  for (int64_t i = 0; i < queries.count; ++i) {
    form.Map(queries[i], scratch);
    LinearAttentionRead(form.plain_options(), View({scratch, width, 1}, width),
                        memory.S, memory.z, View({out[i], d_value, 1}, d_value),
                        serial);
    const float bound =
        form.norm_sums() ? NormOfRow(scratch, width) * memory.norm_sum : 0.0f;
    form.Divide(DotRow(scratch, memory.z, width), bound, d_value, out[i]);
  }
}

}  // namespace tarn::mixers
