// Linear attention with any feature map: features first, then the chunked
// kernel; and the denominator of signed maps around it.
#include "torch_ops/linear/mapped_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "torch_ops/common/tensors.h"

namespace tarn::ops {
namespace {

constexpr char kMappedOp[] = "mapped_linear_attention";
constexpr char kStepOp[] = "mapped_linear_attention_step";

bool HasFunctions(const FeatureMapOptions& features) {
  return features.query_fn || features.key_fn;
}

// Maps that run inside the kernel.
bool IsFused(const MappedAttentionOptions& options) {
  return !HasFunctions(options.features) &&
         IsElementwise(options.features.map) &&
         DenominatorOf(options) != Denominator::kSigned;
}

void CheckOptions(const char* op, const MappedAttentionOptions& options) {
  const FeatureMapOptions& f = options.features;
  if (static_cast<bool>(f.query_fn) != static_cast<bool>(f.key_fn)) {
    throw ArgumentError(StrCat(op, ": query_fn, key_fn"), "both or none",
                        f.query_fn ? "query_fn alone" : "key_fn alone");
  }
  const bool random = UsesOmega(f.map) && !HasFunctions(f);
  if (f.omega.has_value() && !random) {
    throw ArgumentError(StrCat(op, ": omega"),
                        "none, as the map draws no directions", "a tensor");
  }
  if (random && (!f.omega.has_value() || f.omega->dim() != 2)) {
    throw ShapeError(
        StrCat(op, ": omega"), "[d_key, n_freq]",
        f.omega.has_value() ? StrCat(f.omega->dim(), " axes") : "none");
  }
  if (IsElementwise(f.map)) TemperatureRoot(f, 1);  // which has none
  if (!f.stabilise) return;
  if (HasFunctions(f) ||
      (f.map != FeatureMap::kFavor && f.map != FeatureMap::kFavorPositive)) {
    throw ArgumentError(StrCat(op, ": stabilise"),
                        "favor or favor-positive, whose features are "
                        "exponentials",
                        HasFunctions(f) ? "a function" : Name(f.map));
  }
  if (DenominatorOf(options) != Denominator::kExact) {
    throw ArgumentError(StrCat(op, ": denominator (with stabilise)"),
                        "exact, as sums are relative to a running maximum",
                        Name(DenominatorOf(options)));
  }
}

// Casts to autocast's dtype, as the operator's arguments are: modules in C++
// call the functions below without the dispatcher.
template <typename Call>
void CastAlike(Call& in) {
  const c10::DeviceType device = in.queries.device().type();
  if (!at::autocast::is_autocast_available(device) ||
      !at::autocast::is_autocast_enabled(device)) {
    return;
  }
  for (at::Tensor* x : {&in.queries, &in.keys, &in.values}) {
    *x = at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), *x,
                                   device);
  }
}

// phi(x) by the caller's function or by name.
at::Tensor Mapped(const FeatureMapOptions& features, const FeatureFunction& own,
                  const at::Tensor& x) {
  return Wide(own ? own(x) : Features(features, Wide(x)));
}

// Keys with zeros where they are not read: phi of a NaN there, and its slope,
// must not reach a gradient.
at::Tensor KeptOnly(const Operands& in) {
  const at::Tensor kept = KeptKeys(in);
  if (!kept.defined()) return in.keys;
  return at::where(kept.unsqueeze(-1).unsqueeze(-1), in.keys,
                   at::zeros({}, in.keys.options()));
}

// The shape of the state's extra; empty where there is none.
std::vector<c10::SymInt> ExtraShape(const Operands& in,
                                    const MappedAttentionOptions& options) {
  const c10::SymInt states = in.cu_seqlens.has_value()
                                 ? in.cu_seqlens->sym_size(0) - 1
                                 : in.queries.sym_size(0);
  const c10::SymInt heads = in.queries.sym_size(2);
  const FeatureMapOptions& f = options.features;
  if (f.stabilise) {
    const int pair = f.map == FeatureMap::kFavor ? 2 : 1;
    return {states, heads, f.omega->sym_size(1) * pair};
  }
  if (DenominatorOf(options) == Denominator::kSigned) return {states, heads};
  return {};
}

void WantSizes(const char* op, const char* name, const at::Tensor& x,
               const std::vector<c10::SymInt>& shape) {
  if (x.sym_sizes() == c10::SymIntArrayRef(shape)) return;
  throw ShapeError(StrCat(op, ": ", name), StrCat(c10::SymIntArrayRef(shape)),
                   StrCat(x.sym_sizes()));
}

void CheckState(const char* op, const LinearState& initial,
                const std::vector<c10::SymInt>& extra) {
  if (initial.S.defined() != initial.z.defined()) {
    throw ArgumentError(StrCat(op, ": initial state"), "both S and z, or none",
                        initial.S.defined() ? "S alone" : "z alone");
  }
  if (extra.empty() || !initial.S.defined()) {
    if (!initial.extra.defined()) return;
    throw ArgumentError(StrCat(op, ": state.extra"), "none", "a tensor");
  }
  if (!initial.extra.defined()) {
    throw ShapeError(StrCat(op, ": state.extra"),
                     StrCat(c10::SymIntArrayRef(extra)), "none");
  }
  WantSizes(op, "state.extra", initial.extra, extra);
  if (initial.extra.scalar_type() != initial.S.scalar_type()) {
    throw DTypeError(StrCat(op, ": state.extra"),
                     StrCat(initial.S.scalar_type(), " as S"),
                     StrCat(initial.extra.scalar_type()));
  }
}

// Checks what the kernel's checks, which see features, cannot name.
void CheckMappedCall(const char* op, const Operands& in,
                     const MappedAttentionOptions& options,
                     const LinearState& initial) {
  for (const auto& [name, x] :
       {std::pair("queries", &in.queries), std::pair("keys", &in.keys),
        std::pair("values", &in.values)}) {
    if (x->dim() != 4) {
      throw ShapeError(StrCat(op, ": ", name), "[batch, seq_len, heads, width]",
                       StrCat(x->dim(), " axes"));
    }
    if (x->scalar_type() != in.queries.scalar_type()) {
      throw DTypeError(StrCat(op, ": ", name),
                       StrCat(in.queries.scalar_type(), " as queries"),
                       StrCat(x->scalar_type()));
    }
  }
  const c10::SymInt batch = in.queries.sym_size(0), keys = in.keys.sym_size(1);
  if (in.key_mask.has_value()) {
    WantSizes(op, "key_mask", *in.key_mask, {batch, keys});
  }
  if (in.key_lengths.has_value()) {
    WantSizes(op, "key_lengths", *in.key_lengths, {batch});
  }
  CheckState(op, initial, ExtraShape(in, options));
}

// Attends with the denominator exact, compat or none in one call of the kernel.
MappedAttentionResult Divided(const Operands& in,
                              const MappedAttentionOptions& options,
                              FeatureMap map, bool return_state) {
  const auto [out, S, z, _] = CallForward(
      in, SettingsOf(options, map, DenominatorOf(options)), return_state);
  MappedAttentionResult result;
  result.out = out;
  if (return_state) result.state = {S, z, {}};
  return result;
}

MappedAttentionResult DividedStep(const StepOperands& in,
                                  const MappedAttentionOptions& options,
                                  FeatureMap map) {
  const auto [out, S, z] =
      CallStep(in, SettingsOf(options, map, DenominatorOf(options)));
  return {out, {S, z, {}}, {}};
}

// A step has no positions to mask.
MappedAttentionOptions StepOptions(MappedAttentionOptions options) {
  options.causal = true;
  options.causal_offset = 0;
  options.chunk_size = 0;
  options.key_mask.reset();
  options.key_lengths.reset();
  options.cu_seqlens.reset();
  return options;
}

// [B, H, width] rows as sequences of one token.
Operands OneToken(const at::Tensor& queries, const at::Tensor& keys,
                  const at::Tensor& values) {
  const auto with_time = [](const char* name, const at::Tensor& row) {
    if (row.dim() == 3) return row.unsqueeze(1);
    throw ShapeError(StrCat(kStepOp, ": ", name), "[batch, heads, width]",
                     StrCat(row.dim(), " axes"));
  };
  Operands one;
  one.queries = with_time("queries", queries);
  one.keys = with_time("keys", keys);
  one.values = with_time("values", values);
  return one;
}

}  // namespace

Denominator DenominatorOf(const MappedAttentionOptions& options) {
  return options.denominator.value_or(DefaultDenominator(options.features));
}

Settings SettingsOf(const MappedAttentionOptions& options, FeatureMap map,
                    Denominator denominator) {
  return {options.causal,    options.causal_offset, Name(map),
          Name(denominator), options.eps,           options.scale,
          options.chunk_size};
}

MappedAttentionResult MappedLinearAttention(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const MappedAttentionOptions& options, const LinearState& initial,
    bool return_state) {
  return WithTorchErrors([&] {
    CheckOptions(kMappedOp, options);
    Operands in = {queries,
                   keys,
                   values,
                   options.key_mask,
                   options.key_lengths,
                   options.cu_seqlens,
                   NoneOr(initial.S),
                   NoneOr(initial.z)};
    CastAlike(in);
    const c10::impl::ExcludeDispatchKeyGuard uncast(
        c10::autocast_dispatch_keyset);  // exponents want float32
    const at::ScalarType dtype = in.queries.scalar_type();
    CheckMappedCall(kMappedOp, in, options, initial);
    if (IsFused(options)) {
      return Divided(in, options, options.features.map, return_state);
    }
    in.keys = KeptOnly(in);
    in.values = Wide(in.values);
    MappedAttentionResult result;
    if (options.features.stabilise) {
      in.queries = Wide(in.queries);
      in.keys = Wide(in.keys);
      result = StabilisedFavor(in, options, initial.extra);
      if (!return_state) result.state = {};
    } else {
      in.queries =
          Mapped(options.features, options.features.query_fn, in.queries);
      in.keys = Mapped(options.features, options.features.key_fn, in.keys);
      result = DenominatorOf(options) == Denominator::kSigned
                   ? SignedSequence(in, options, initial.extra, return_state)
                   : Divided(in, options, FeatureMap::kIdentity, return_state);
    }
    result.out = result.out.to(dtype);
    return result;
  });
}

MappedAttentionResult MappedLinearAttentionStep(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const MappedAttentionOptions& given, const LinearState& state) {
  return WithTorchErrors([&] {
    const MappedAttentionOptions options = StepOptions(given);
    CheckOptions(kStepOp, options);
    StepOperands in = {queries, keys, values, NoneOr(state.S), NoneOr(state.z)};
    CastAlike(in);
    Operands one = OneToken(in.queries, in.keys, in.values);
    const c10::impl::ExcludeDispatchKeyGuard uncast(
        c10::autocast_dispatch_keyset);
    const at::ScalarType dtype = one.queries.scalar_type();
    CheckMappedCall(kStepOp, one, options, state);
    MappedAttentionResult result;
    if (options.features.stabilise) {
      for (at::Tensor* x : {&one.queries, &one.keys, &one.values}) {
        *x = Wide(*x);
      }
      one.initial_S = NoneOr(state.S);
      one.initial_z = NoneOr(state.z);
      result = StabilisedFavor(one, options, state.extra);
      result.out = result.out.squeeze(1).to(dtype);
      return result;
    }
    if (IsFused(options)) {
      return DividedStep(in, options, options.features.map);
    }
    in.queries =
        Mapped(options.features, options.features.query_fn, in.queries);
    in.keys = Mapped(options.features, options.features.key_fn, in.keys);
    in.values = Wide(in.values);
    result = DenominatorOf(options) == Denominator::kSigned
                 ? SignedStep(in, options, state.extra)
                 : DividedStep(in, options, FeatureMap::kIdentity);
    result.out = result.out.to(dtype);
    return result;
  });
}

at::Tensor CausalDotProduct(const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values) {
  return WithTorchErrors([&] {
    for (const at::Tensor* x : {&queries, &keys, &values}) {
      if (x->dim() == 4) continue;
      throw ShapeError("causal_dot_product: queries, keys, values",
                       "[batch, heads, seq_len, width]",
                       StrCat(x->dim(), " axes"));
    }
    Operands in;
    in.queries = queries.transpose(1, 2);
    in.keys = keys.transpose(1, 2);
    in.values = values.transpose(1, 2);
    Settings settings;
    settings.feature_map = Name(FeatureMap::kIdentity);
    settings.denominator = Name(Denominator::kNone);
    return std::get<0>(CallForward(in, settings, /*return_state=*/false))
        .transpose(1, 2)
        .contiguous();
  });
}

}  // namespace tarn::ops
