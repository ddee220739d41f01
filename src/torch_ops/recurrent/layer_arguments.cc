#include "torch_ops/recurrent/layer_arguments.h"

namespace tarn::ops::layer_step {

Kind MakeKind(int64_t n_heads, c10::string_view activation,
              c10::string_view norm_kind, double norm_eps, bool pre_norm) {
  return WithTorchErrors([&] {
    Kind kind;
    kind.heads = n_heads;
    kind.activation = ParseActivation(kOp, activation);
    kind.norm = ParseNormKind(kOp, norm_kind);
    kind.norm_eps = norm_eps;
    kind.pre_norm = pre_norm;
    return kind;
  });
}

Mixer ParseMixer(const char* name, c10::string_view mixer) {
  if (mixer == "linear") return Mixer::kLinear;
  if (mixer == "full") return Mixer::kFull;
  throw ArgumentError(StrCat(kOp, ": ", name), "'linear' or 'full'",
                      StrCat("'", std::string(mixer), "'"));
}

std::vector<Call> MakeLayers(const at::Tensor& x, at::TensorList S,
                             at::TensorList z, const TensorList& weights,
                             const Kind& kind) {
  return WithTorchErrors([&] {
    const size_t places = kind.cross.has_value() ? kDecoderPlaces : kPlaces;
    const size_t count = weights.size() / places;
    if (weights.size() % places != 0) {
      throw ShapeError(StrCat(kOp, ": weights"),
                       StrCat("a multiple of ", places, " of them"),
                       StrCat(weights.size()));
    }
    if (S.size() != z.size() || (!S.empty() && S.size() != count)) {
      const bool full = kind.mixer == Mixer::kFull;
      throw ShapeError(StrCat(kOp, full ? ": keys, values" : ": S, z"),
                       StrCat("none, or ", count, " of each"),
                       StrCat(S.size(), " and ", z.size()));
    }
    std::vector<Call> layers;
    layers.reserve(count);
    auto next = weights.begin();
    for (size_t i = 0; i < count; ++i) {
      Call& in = layers.emplace_back(Call{x, {}, {}, {}, kind, i * places});
      in.weights.assign(next, next + places);
      next += places;
      if (S.empty()) continue;
      in.S = S[i];
      in.z = z[i];
    }
    return layers;
  });
}

void CheckLastNorm(const at::Tensor& x, const After& after) {
  const OptionalTensor &gamma = after.gamma, &beta = after.beta;
  WithTorchErrors([&] {
    if (beta.has_value() && !gamma.has_value()) {
      throw ArgumentError(StrCat(kOp, ": beta"), "none without a gamma",
                          "a tensor");
    }
    if (x.dim() != 2) return;  // the layers report it
    const c10::SymInt width = x.sym_size(1);
    if (gamma.has_value()) WantLike(kOp, "gamma", *gamma, x, {width});
    if (beta.has_value()) WantLike(kOp, "beta", *beta, x, {width});
  });
}

}  // namespace tarn::ops::layer_step
