// Argument checks: everything here runs before any work.
#include <algorithm>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn {
namespace {

constexpr char kOp[] = "linear_attention: ";

// Allocates only when it throws: a step runs this check for every token.
void WantShape(const char* name, const TensorView& view,
               const int64_t (&wanted)[4]) {
  if (!std::equal(wanted, wanted + 4, view.size)) {
    throw ShapeError(kOp + std::string(name), ShapeText({wanted, wanted + 4}),
                     ShapeText(view.Shape()));
  }
}

void WantData(const char* name, const TensorView& view) {
  const bool empty = view.size[0] == 0 || view.size[1] == 0;
  if (view.data == nullptr && !empty) {
    throw ArgumentError(kOp + std::string(name), "data", "a null pointer");
  }
}

void CheckOptions(const LinearAttentionOptions& o) {
  if (o.chunk_size != 0 && o.chunk_size != 16 && o.chunk_size != 32 &&
      o.chunk_size != 64) {
    throw ArgumentError(StrCat(kOp, "chunk_size"), "0 (best), 16, 32 or 64",
                        StrCat(o.chunk_size));
  }
  if (!IsElementwise(o.feature_map)) {
    throw ArgumentError(StrCat(kOp, "feature_map"),
                        "elu1, identity, relu or relu2 (features of other maps "
                        "are computed before the call, which then takes "
                        "identity)",
                        Name(o.feature_map));
  }
  if (o.denominator == Denominator::kSigned) {
    throw ArgumentError(StrCat(kOp, "denominator"),
                        "exact, compat or none (signed divides outside of it)",
                        Name(o.denominator));
  }
  if (o.denominator == Denominator::kCompat && !(o.eps > 0.0f)) {
    throw ArgumentError(StrCat(kOp, "eps"), "a positive number", StrCat(o.eps));
  }
  if (!(o.scale > 0.0f) || o.scale * 0.0f != 0.0f) {
    throw ArgumentError(StrCat(kOp, "scale"), "a positive, finite number",
                        StrCat(o.scale));
  }
}

void CheckShapes(const LinearAttentionInputs& in) {
  const int64_t batch = in.queries.size[0], heads = in.queries.size[2];
  const int64_t d_key = in.queries.size[3];
  const int64_t seq_len_k = in.keys.size[1];
  const int64_t value_heads = in.values.size[2], d_value = in.values.size[3];
  if (heads < 1 || d_key < 1) {
    throw ShapeError(StrCat(kOp, "queries"),
                     "[B, T, H, K] with H >= 1 and K >= 1",
                     ShapeText(in.queries.Shape()));
  }
  WantShape("keys", in.keys, {batch, seq_len_k, heads, d_key});
  if (value_heads < 1 || value_heads % heads != 0 || d_value < 1 ||
      in.values.size[0] != batch || in.values.size[1] != seq_len_k) {
    throw ShapeError(StrCat(kOp, "values"),
                     StrCat("[", batch, ", ", seq_len_k, ", a multiple of ",
                            heads, ", V >= 1] (time comes before heads)"),
                     ShapeText(in.values.Shape()));
  }
  for (const TensorView* view : {&in.keys, &in.values}) {
    if (view->dtype != in.queries.dtype) {
      throw DTypeError(StrCat(kOp, view == &in.keys ? "keys" : "values"),
                       StrCat(DTypeName(in.queries.dtype), " as queries"),
                       DTypeName(view->dtype));
    }
  }
  WantData("queries", in.queries);
  WantData("keys", in.keys);
  WantData("values", in.values);
}

void CheckLengths(const LinearAttentionInputs& in) {
  const int64_t batch = in.queries.size[0], seq_len_k = in.keys.size[1];
  if (in.key_lengths != nullptr && in.cu_seqlens != nullptr) {
    throw ArgumentError(StrCat(kOp, "key_lengths"),
                        "no key_lengths with cu_seqlens", "both");
  }
  if (in.key_lengths != nullptr && !in.on_device) {
    for (int64_t b = 0; b < batch; ++b) {
      if (in.key_lengths[b] < 0 || in.key_lengths[b] > seq_len_k) {
        throw ArgumentError(StrCat(kOp, "key_lengths[", b, "]"),
                            StrCat("0 to ", seq_len_k),
                            StrCat(in.key_lengths[b]));
      }
    }
  }
  if (in.cu_seqlens == nullptr) return;
  if (batch != 1 || in.queries.size[1] != seq_len_k) {
    throw ShapeError(StrCat(kOp, "queries (with cu_seqlens)"),
                     StrCat("B = 1 and T = S = ", seq_len_k),
                     ShapeText(in.queries.Shape()));
  }
  if (in.on_device && in.sequences >= 0) return;
  if (in.sequences < 0 || in.cu_seqlens[0] != 0 ||
      in.cu_seqlens[in.sequences] != seq_len_k) {
    throw ArgumentError(
        StrCat(kOp, "cu_seqlens"), StrCat("0, ..., ", seq_len_k),
        in.sequences < 0
            ? std::string("nothing")
            : StrCat(in.cu_seqlens[0], ", ..., ", in.cu_seqlens[in.sequences]));
  }
  for (int64_t s = 0; s < in.sequences; ++s) {
    if (in.cu_seqlens[s] > in.cu_seqlens[s + 1]) {
      throw ArgumentError(StrCat(kOp, "cu_seqlens[", s + 1, "]"),
                          StrCat("at least ", in.cu_seqlens[s]),
                          StrCat(in.cu_seqlens[s + 1]));
    }
  }
}

}  // namespace

void CheckLinearAttention(const LinearAttentionOptions& options,
                          const LinearAttentionInputs& in,
                          const LinearAttentionOutputs& outputs) {
  CheckOptions(options);
  CheckShapes(in);
  CheckLengths(in);
  WantShape("out", outputs.out,
            {in.queries.size[0], in.queries.size[1], in.values.size[2],
             in.values.size[3]});
  if (outputs.out.dtype != in.queries.dtype) {
    throw DTypeError(StrCat(kOp, "out"), DTypeName(in.queries.dtype),
                     DTypeName(outputs.out.dtype));
  }
  WantData("out", outputs.out);
  if ((in.initial_S == nullptr) != (in.initial_z == nullptr)) {
    throw ArgumentError(StrCat(kOp, "initial state"), "both S and z, or none",
                        in.initial_S == nullptr ? "z alone" : "S alone");
  }
}

}  // namespace tarn
