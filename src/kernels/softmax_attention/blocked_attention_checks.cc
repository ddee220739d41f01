#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/softmax_attention/blocked_attention.h"

namespace tarn {
namespace {

constexpr char kOp[] = "softmax_attention: ";

void WantFloat32(const char* name, const TensorView& view) {
  if (view.dtype != DType::kF32) {
    throw DTypeError(StrCat(kOp, name), "float32", "a 16-bit type");
  }
}

// A check that passes allocates no memory: kernels run it in every call.
struct Sizes {
  int64_t at[4];
};

void WantShape(const char* name, const TensorView& view, const Sizes& wanted,
               const char* hint = "") {
  if (!std::equal(view.size, view.size + 4, wanted.at)) {
    throw ShapeError(StrCat(kOp, name),
                     ShapeText({wanted.at, wanted.at + 4}) + hint,
                     ShapeText(view.Shape()));
  }
  for (const int64_t size : wanted.at) {
    if (size == 0) return;
  }
  if (view.data == nullptr) {
    throw ArgumentError(StrCat(kOp, name), "data", "a null pointer");
  }
}

}  // namespace

void CheckBlockedAttention(const BlockedAttentionOptions& options,
                           const BlockedAttentionInputs& in,
                           const BlockedAttentionOutputs& outputs) {
  const int64_t* q = in.queries.size;
  for (int axis = 0; axis < 4; ++axis) {
    if (q[axis] < (axis < 2 ? 0 : 1)) {
      throw ShapeError(StrCat(kOp, "queries"),
                       "at least one head and a width of at least 1",
                       ShapeText(in.queries.Shape()));
    }
  }
  if (in.keys.size[1] < 0 || in.values.size[3] < 1) {
    throw ShapeError(StrCat(kOp, "values"), "a width of at least 1",
                     ShapeText(in.values.Shape()));
  }
  WantFloat32("queries", in.queries);
  WantFloat32("keys", in.keys);
  WantFloat32("values", in.values);
  WantFloat32("out", outputs.out);
  WantShape("queries", in.queries, {{q[0], q[1], q[2], q[3]}});
  WantShape("keys", in.keys, {{q[0], in.keys.size[1], q[2], q[3]}},
            " (time comes before heads)");
  WantShape("values", in.values,
            {{q[0], in.keys.size[1], q[2], in.values.size[3]}});
  WantShape("out", outputs.out, {{q[0], q[1], q[2], in.values.size[3]}});
  if (options.local_context < 0) {
    throw ArgumentError(StrCat(kOp, "local_context"),
                        "a positive number, or 0 for none",
                        StrCat(options.local_context));
  }
  if (options.window < 0 || (options.window > 0 && !options.causal)) {
    throw ArgumentError(StrCat(kOp, "window"),
                        "a positive number for causal attention, or 0 for none",
                        StrCat(options.window));
  }
  // Written so that NaN is refused.
  if (!(options.softcap >= 0.0f && std::isfinite(options.softcap))) {
    throw ArgumentError(StrCat(kOp, "softcap"),
                        "a positive number, or 0 for none",
                        StrCat(options.softcap));
  }
  for (int64_t b = 0; in.key_lengths != nullptr && b < q[0]; ++b) {
    if (in.key_lengths[b] < 0 || in.key_lengths[b] > in.keys.size[1]) {
      throw ArgumentError(StrCat(kOp, "key_lengths[", b, "]"),
                          StrCat("a length in [0, ", in.keys.size[1], "]"),
                          StrCat(in.key_lengths[b]));
    }
  }
}

}  // namespace tarn
