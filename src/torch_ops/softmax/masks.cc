// Which keys a query may read: checks of masks and calls, and all masks as one
// tensor for composed forms.
#include <ATen/TensorOperators.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

#include <cmath>
#include <string>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/softmax/attention.h"
#include "torch_ops/softmax/call.h"

namespace tarn::ops {
namespace {

void WantMaskDType(const std::string& where, const at::Tensor& mask) {
  if (mask.scalar_type() != at::kBool) {
    throw DTypeError(where, "Bool", c10::toString(mask.scalar_type()));
  }
}

void WantDevice(const std::string& where, const at::Tensor& tensor,
                const at::Tensor& like) {
  if (tensor.device() != like.device()) {
    throw DeviceError(where, like.device().str(), tensor.device().str());
  }
}

void WantSizes(const std::string& where, const at::Tensor& tensor,
               const std::vector<c10::SymInt>& sizes) {
  if (tensor.sym_sizes() != c10::SymIntArrayRef(sizes)) {
    throw ShapeError(where, StrCat(c10::SymIntArrayRef(sizes)),
                     StrCat(tensor.sym_sizes()));
  }
}

void CheckLengths(const std::string& where, const at::Tensor& lengths,
                  const at::Tensor& keys) {
  if (lengths.scalar_type() != at::kInt && lengths.scalar_type() != at::kLong) {
    throw DTypeError(where, "Int or Long",
                     c10::toString(lengths.scalar_type()));
  }
  WantSizes(where, lengths, {keys.sym_size(0)});
  if (!HoldsData(lengths) || lengths.numel() == 0) return;
  const int64_t least = lengths.min().item().toLong();
  const int64_t most = lengths.max().item().toLong();
  if (least < 0 || most > keys.size(1)) {
    throw ArgumentError(where, StrCat("lengths in [0, ", keys.size(1), "]"),
                        StrCat(least < 0 ? least : most));
  }
}

at::Tensor Both(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() ? a.logical_and(b) : b;
}

}  // namespace

void WantPlane(const std::string& where, const at::Tensor& plane,
               const at::Tensor& queries, const at::Tensor& keys) {
  WantDevice(where, plane, queries);
  const c10::SymInt whole[] = {queries.sym_size(0), queries.sym_size(2),
                               queries.sym_size(1), keys.sym_size(1)};
  bool fits = plane.dim() <= 4;
  for (int64_t axis = 0; fits && axis < plane.dim(); ++axis) {
    const c10::SymInt& size = plane.sym_size(axis);
    fits = size == 1 || size == whole[4 - plane.dim() + axis];
  }
  if (!fits) {
    throw ShapeError(
        where,
        StrCat("a shape that broadcasts to ", c10::SymIntArrayRef(whole),
               " (batch, heads, queries, keys)"),
        StrCat(plane.sym_sizes()));
  }
}

void CheckAttentionMasks(const char* op, const AttentionMasks& masks,
                         const at::Tensor& queries, const at::Tensor& keys) {
  const auto where = [&](const char* name) { return StrCat(op, ": ", name); };
  if (masks.attention_mask.has_value()) {
    WantMaskDType(where("attention_mask"), *masks.attention_mask);
    WantPlane(where("attention_mask"), *masks.attention_mask, queries, keys);
  }
  if (masks.key_mask.has_value()) {
    WantMaskDType(where("key_mask"), *masks.key_mask);
    WantDevice(where("key_mask"), *masks.key_mask, queries);
    WantSizes(where("key_mask"), *masks.key_mask,
              {keys.sym_size(0), keys.sym_size(1)});
  }
  if (masks.key_lengths.has_value()) {
    WantDevice(where("key_lengths"), *masks.key_lengths, queries);
    CheckLengths(where("key_lengths"), *masks.key_lengths, keys);
  }
}

at::Tensor KeptKeys(const AttentionMasks& masks, const at::Tensor& keys) {
  return KeptPositions(masks.key_mask, masks.key_lengths, keys.sym_size(1));
}

at::Tensor AllowedPairs(const AttentionMasks& masks, const at::Tensor& queries,
                        const at::Tensor& keys) {
  at::Tensor allowed;
  if (masks.causal) {
    const at::Tensor last =
        Range(queries.sym_size(1), queries) +
        at::Scalar(Reach(masks, queries.sym_size(1), keys.sym_size(1)));
    allowed = (Range(keys.sym_size(1), keys).unsqueeze(0) <= last.unsqueeze(1))
                  .unsqueeze(0)
                  .unsqueeze(0);
  }
  if (masks.attention_mask.has_value()) {
    at::Tensor mask = *masks.attention_mask;
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
    allowed = Both(allowed, mask);
  }
  const at::Tensor kept = KeptKeys(masks, keys);
  if (kept.defined()) allowed = Both(allowed, kept.unsqueeze(1).unsqueeze(1));
  return allowed;
}

double SoftmaxCall::temperature() const {
  if (options.softmax_temp.has_value()) return *options.softmax_temp;
  const int64_t d_key = queries.sym_size(3).guard_int(__FILE__, __LINE__);
  return 1.0 / std::sqrt(static_cast<double>(d_key));
}

void CheckSoftmaxCall(const char* op, const SoftmaxCall& call) {
  const auto where = [&](const char* name) { return StrCat(op, ": ", name); };
  const at::Tensor& q = call.queries;
  const at::ScalarType type = q.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16 &&
      type != at::kHalf) {
    throw DTypeError(where("queries"), "Float, Double, BFloat16 or Half",
                     c10::toString(type));
  }
  if (q.dim() != 4 || q.sym_size(2) < 1 || q.sym_size(3) < 1) {
    throw ShapeError(where("queries"),
                     "[batch, seq_len, heads, width], heads and width >= 1",
                     StrCat(q.sym_sizes()));
  }
  if (call.keys.dim() != 4 || call.values.dim() != 4 ||
      call.values.sym_size(3) < 1) {
    throw ShapeError(
        where(call.keys.dim() != 4 ? "keys" : "values"),
        "4 axes [batch, seq_len, heads, width], width >= 1",
        StrCat((call.keys.dim() != 4 ? call.keys : call.values).sym_sizes()));
  }
  const c10::SymInt& keys = call.keys.sym_size(1);
  WantLike(op, "keys", call.keys, q,
           {q.sym_size(0), keys, q.sym_size(2), q.sym_size(3)});
  WantLike(op, "values", call.values, q,
           {q.sym_size(0), keys, q.sym_size(2), call.values.sym_size(3)});
  CheckAttentionMasks(op, call.masks, q, call.keys);
  if (call.options.bias.has_value()) {
    if (!call.options.bias->is_floating_point()) {
      throw DTypeError(where("bias"), "a floating-point type",
                       c10::toString(call.options.bias->scalar_type()));
    }
    WantPlane(where("bias"), *call.options.bias, q, call.keys);
  }
  if (call.local_context < 0) {
    throw ArgumentError(where("local_context"), "a positive number",
                        StrCat(call.local_context));
  }
  if (call.options.softmax_temp.has_value() &&
      !std::isfinite(*call.options.softmax_temp)) {
    throw ArgumentError(where("softmax_temp"), "a finite number",
                        StrCat(*call.options.softmax_temp));
  }
  const SoftmaxOptions& more = call.options;
  if (more.window < 0 || (more.window > 0 && !call.masks.causal)) {
    throw ArgumentError(where("window"),
                        "a positive number, for causal attention",
                        StrCat(more.window));
  }
  if (!(more.softcap >= 0 && std::isfinite(more.softcap))) {
    throw ArgumentError(where("softcap"), "a positive number, or 0 for none",
                        StrCat(more.softcap));
  }
  if (more.sinks.has_value()) {
    if (!more.sinks->is_floating_point()) {
      throw DTypeError(where("sinks"), "a floating-point type",
                       c10::toString(more.sinks->scalar_type()));
    }
    WantDevice(where("sinks"), *more.sinks, q);
    WantSizes(where("sinks"), *more.sinks, {q.sym_size(2)});
  }
  (void)MakeDropoutKey({call.options.dropout.probability, 0});
  if (call.options.dropout.probability > 0 && !call.options.dropout.seed) {
    throw ArgumentError(where("seed"), "a tensor with dropout > 0", "none");
  }
}

}  // namespace tarn::ops
