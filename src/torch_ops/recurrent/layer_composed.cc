// What a layer's step checks, and its composed form.
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <tuple>

#include "torch_ops/common/forms.h"
#include "torch_ops/recurrent/layer_call.h"

namespace tarn::ops::layer_step {

void Check(const Call& in) {
  const auto name = [&](Place place) {
    return StrCat("weights[", in.first_weight + place, "]");
  };
  const bool decoder = in.kind.cross.has_value();
  const size_t count = decoder ? kDecoderPlaces : kPlaces;
  if (in.weights.size() != count) {
    throw ShapeError(StrCat(kOp, ": weights"), StrCat(count, " of them"),
                     StrCat(in.weights.size()));
  }
  if (in.x.dim() != 2) {
    throw ShapeError(StrCat(kOp, ": x"), "[B, D]", StrCat(in.x.dim(), " axes"));
  }
  for (const Place place :
       {kQuery, kKey, kValue, kOut, kGamma1, kLinear1, kLinear2, kGamma2}) {
    if (!in.weights[place].has_value()) {
      throw ArgumentError(StrCat(kOp, ": ", name(place)), "a tensor", "none");
    }
  }
  for (const Place place : {kCrossQuery, kCrossOut, kCrossGamma}) {
    if (decoder && !in.weights[place].has_value()) {
      throw ArgumentError(StrCat(kOp, ": ", name(place)), "a tensor", "none");
    }
  }
  // A bias needs a layer that is not gated, a beta a layer norm.
  const bool gated = in.weights[kLinear3].has_value();
  const bool betas = in.kind.norm == NormKind::kLayer;
  const std::tuple<Place, bool> kinds[] = {
      {kBias1, !gated}, {kBeta1, betas}, {kBeta2, betas}, {kCrossBeta, betas}};
  for (const auto& [place, wanted] : kinds) {
    if (place >= count || in.weights[place].has_value() == wanted) continue;
    throw ArgumentError(StrCat(kOp, ": ", name(place)),
                        wanted ? "a tensor" : "none, as the layer has no such",
                        wanted ? "none" : "a tensor");
  }
  if (in.kind.heads < 1) {
    throw ArgumentError(StrCat(kOp, ": n_heads"), "at least 1",
                        StrCat(in.kind.heads));
  }
  const auto want = [&](Place place, at::SymIntArrayRef shape) {
    const OptionalTensor& weight = in.weights[place];
    if (!weight.has_value()) return;
    // The name is only made for an error: making it costs more than comparing.
    if (weight->scalar_type() == in.x.scalar_type() &&
        weight->device() == in.x.device() && weight->sym_sizes() == shape) {
      return;
    }
    WantLike(kOp, name(place).c_str(), *weight, in.x, shape);
  };
  const auto outputs = [&](Place place) {
    const at::Tensor& weight = in.weight(place);
    return weight.dim() == 2 ? weight.sym_size(0) : c10::SymInt(0);
  };
  const c10::SymInt width = in.x.sym_size(1), keys = outputs(kQuery);
  const c10::SymInt values = outputs(kValue), hidden = outputs(kLinear1);
  if (keys % in.kind.heads != 0 || values % in.kind.heads != 0) {
    throw ShapeError(StrCat(kOp, ": n_heads"),
                     StrCat("a divisor of ", keys, " and ", values),
                     StrCat(in.kind.heads));
  }
  want(kQuery, {keys, width});
  want(kKey, {keys, width});
  want(kValue, {values, width});
  want(kOut, {width, values});
  want(kLinear1, {hidden, width});
  want(kLinear2, {width, hidden});
  want(kLinear3, {hidden, width});
  want(kQueryBias, {keys});
  want(kKeyBias, {keys});
  want(kValueBias, {values});
  want(kBias1, {hidden});
  for (const Place place :
       {kOutBias, kBias2, kGamma1, kBeta1, kGamma2, kBeta2}) {
    want(place, {width});
  }
  const c10::SymInt batch = in.x.sym_size(0), heads = in.kind.heads;
  const auto want_state = [&](Mixer mixer, const at::Tensor& S,
                              const at::Tensor& z, const c10::SymInt& d_key,
                              const c10::SymInt& d_value, const char* of) {
    const auto named = [&](const char* what) { return StrCat(of, what); };
    if (mixer == Mixer::kFull) {
      if (S.dim() != 4) {
        throw ShapeError(StrCat(kOp, ": ", of, "keys"), "[B, t, H, E]",
                         StrCat(S.dim(), " axes"));
      }
      const c10::SymInt tokens = S.sym_size(1);
      WantLike(kOp, named("keys").c_str(), S, in.x,
               {batch, tokens, heads, d_key});
      WantLike(kOp, named("values").c_str(), z, in.x,
               {batch, tokens, heads, d_value});
      return;
    }
    WantLike(kOp, named("S").c_str(), S, in.x, {batch, heads, d_key, d_value});
    WantLike(kOp, named("z").c_str(), z, in.x, {batch, heads, d_key});
  };
  if (in.S.has_value()) {
    want_state(in.kind.mixer, *in.S, *in.z, keys / heads, values / heads, "");
  }
  if (!decoder) return;
  const c10::SymInt cross_keys = outputs(kCrossQuery);
  const at::Tensor& cross_out = in.weight(kCrossOut);
  const c10::SymInt cross_values =
      cross_out.dim() == 2 ? cross_out.sym_size(1) : c10::SymInt(0);
  want(kCrossQuery, {cross_keys, width});
  want(kCrossQueryBias, {cross_keys});
  want(kCrossOut, {width, cross_values});
  for (const Place place : {kCrossOutBias, kCrossGamma, kCrossBeta}) {
    want(place, {width});
  }
  want_state(*in.kind.cross, *in.memory_S, *in.memory_z, cross_keys / heads,
             cross_values / heads, "memory ");
}

bool KernelsServe(const Call& in, bool tangents) {
  if (!KernelServes(in.x, in.S, in.z) || IsTraced(in.x)) return false;
  if (WantsGradient(in.x, in.S, in.z)) return false;
  if (in.kind.cross.has_value()) {
    if (WantsGradient(in.memory_S, in.memory_z) ||
        (tangents && (HasTangent(in.memory_S) || HasTangent(in.memory_z)))) {
      return false;
    }
    // The kernel has one size for both attentions, and no empty memory.
    const bool full = *in.kind.cross == Mixer::kFull;
    if (in.weight(kCrossQuery).size(0) != in.weight(kQuery).size(0) ||
        in.weight(kCrossOut).size(1) != in.weight(kOut).size(1) ||
        (full && in.memory_S->size(1) == 0)) {
      return false;
    }
  }
  for (const OptionalTensor& weight : in.weights) {
    if (WantsGradient(weight) || (tangents && HasTangent(weight))) return false;
  }
  return true;
}

namespace {

at::Tensor Normed(const Call& in, const at::Tensor& x, Place gamma) {
  ResidualNormArguments arguments;
  arguments.x = x;
  arguments.gamma = in.weights[gamma];
  arguments.beta = in.weights[gamma + 1];
  arguments.eps = in.kind.norm_eps;
  arguments.kind = in.kind.norm;
  return ResidualNorm(arguments).y;
}

// residual + (x + bias), then the norm where it comes after.
at::Tensor Added(const Call& in, const at::Tensor& x,
                 const at::Tensor& residual, Place bias, Place gamma) {
  ResidualNormArguments arguments;
  arguments.x = x;
  arguments.residual = residual;
  arguments.bias = in.weights[bias];
  const at::Tensor s = ResidualNorm(arguments).s;
  return in.kind.pre_norm ? s : Normed(in, s, gamma);
}

}  // namespace

ThreeHeads ComposedHeads(const Call& in) {
  const at::Tensor y = in.kind.pre_norm ? Normed(in, in.x, kGamma1) : in.x;
  const auto heads = [&](Place weight) {
    const at::Tensor rows =
        Affine(y, in.weight(weight), in.weights[weight + 1]);
    const c10::SymInt heads = in.kind.heads;
    return rows.unflatten_symint(-1, {heads, rows.sym_size(-1) / heads});
  };
  return {heads(kQuery), heads(kKey), heads(kValue)};
}

namespace {

// queries [B, H, E] over keys [B, t, H, E]; sums in float32 at least.
at::Tensor SoftmaxOver(const Call& in, const at::Tensor& queries,
                       const at::Tensor& keys, const at::Tensor& values) {
  const double width =
      static_cast<double>(keys.sym_size(3).guard_int(__FILE__, __LINE__));
  const double scale = in.kind.softmax_temp.value_or(1.0 / std::sqrt(width));
  const at::ScalarType dtype = ComputeType(queries);
  const at::Tensor scores =
      (queries.to(dtype).unsqueeze(1) * keys.to(dtype)).sum(-1) * scale;
  const at::Tensor weights = at::softmax(scores, 1).unsqueeze(-1);
  return (weights * values.to(dtype)).sum(1).to(queries.scalar_type());
}

// What rows y read from the memory.
at::Tensor ComposedRead(const Call& in, const at::Tensor& y) {
  const at::Tensor rows =
      Affine(y, in.weight(kCrossQuery), in.weights[kCrossQueryBias]);
  const c10::SymInt heads = in.kind.heads;
  const at::Tensor queries =
      rows.unflatten_symint(-1, {heads, rows.sym_size(-1) / heads});
  if (*in.kind.cross == Mixer::kFull) {
    return SoftmaxOver(in, queries, *in.memory_S, *in.memory_z);
  }
  // Queries over no keys, from the state of the memory.
  Operands read;
  read.queries = queries.unsqueeze(1);
  read.keys = read.queries.narrow(1, 0, 0);
  read.values =
      y.new_empty_symint({y.sym_size(0), 0, heads, in.memory_S->sym_size(3)});
  read.initial_S = in.memory_S;
  read.initial_z = in.memory_z;
  Settings settings = in.kind.attention;
  settings.causal = false;
  return std::get<0>(CallForward(read, settings, false)).squeeze(1);
}

// The sublayer that reads the memory, after x.
at::Tensor ComposedCross(const Call& in, const at::Tensor& x) {
  const at::Tensor y = in.kind.pre_norm ? Normed(in, x, kCrossGamma) : x;
  const at::Tensor read = ComposedRead(in, y);
  return Added(in, Affine(read.flatten(1), in.weight(kCrossOut)), x,
               kCrossOutBias, kCrossGamma);
}

}  // namespace

at::Tensor ComposedRest(const Call& in, const at::Tensor& attended) {
  at::Tensor x1 = Added(in, Affine(attended.flatten(1), in.weight(kOut)), in.x,
                        kOutBias, kGamma1);
  if (in.kind.cross.has_value()) x1 = ComposedCross(in, x1);
  const at::Tensor y1 = in.kind.pre_norm ? Normed(in, x1, kGamma2) : x1;
  const at::Tensor up =
      in.weights[kLinear3].has_value()
          ? SwigluFeedForward(y1, in.weight(kLinear1), in.weight(kLinear2),
                              in.weight(kLinear3))
          : FeedForward(y1, in.weight(kLinear1), in.weight(kBias1),
                        in.weight(kLinear2), in.kind.activation);
  return Added(in, up, x1, kBias2, kGamma2);
}

StepResults ComposedStep(const Call& in) {
  const auto [queries, keys, values] = ComposedHeads(in);
  if (in.kind.mixer == Mixer::kFull) {
    at::Tensor all_keys = keys.unsqueeze(1), all_values = values.unsqueeze(1);
    if (in.S.has_value()) {
      all_keys = at::cat({*in.S, all_keys}, 1);
      all_values = at::cat({*in.z, all_values}, 1);
    }
    const at::Tensor attended = SoftmaxOver(in, queries, all_keys, all_values);
    return {ComposedRest(in, attended), all_keys, all_values};
  }
  const auto [attended, S, z] =
      CallStep({queries, keys, values, in.S, in.z}, in.kind.attention);
  return {ComposedRest(in, attended), S, z};
}

}  // namespace tarn::ops::layer_step
