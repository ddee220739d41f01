// The torch operators of a token through layers: flat arguments are turned into
// values here.
#include <torch/library.h>

#include "torch_ops/recurrent/layer_arguments.h"

namespace tarn::ops::layer_step {
namespace {

Call MakeCall(const at::Tensor& x, const TensorList& weights, int64_t n_heads,
              c10::string_view activation, c10::string_view norm_kind,
              double norm_eps, bool pre_norm) {
  return {x,
          {},
          {},
          {weights.begin(), weights.end()},
          MakeKind(n_heads, activation, norm_kind, norm_eps, pre_norm),
          0};
}

using FlatResults =
    std::tuple<at::Tensor, std::vector<at::Tensor>, std::vector<at::Tensor>>;

FlatResults Flat(const at::Tensor& x, at::TensorList S, at::TensorList z,
                 const TensorList& weights, const OptionalTensor& gamma,
                 const OptionalTensor& beta, const Kind& kind) {
  const After after = {gamma, beta, {}, {}};
  CheckLastNorm(x, after);
  std::vector<Call> layers = MakeLayers(x, S, z, weights, kind);
  LayersResults results = Steps(layers, x, kind, after);
  return {std::move(results.out), std::move(results.S), std::move(results.z)};
}

FlatResults FlatSteps(const at::Tensor& x, at::TensorList S, at::TensorList z,
                      const TensorList& weights, const OptionalTensor& gamma,
                      const OptionalTensor& beta, int64_t n_heads,
                      c10::string_view feature_map,
                      c10::string_view denominator, double eps,
                      c10::string_view activation, c10::string_view norm_kind,
                      double norm_eps, bool pre_norm) {
  Kind kind = MakeKind(n_heads, activation, norm_kind, norm_eps, pre_norm);
  kind.attention.feature_map = std::string(feature_map);
  kind.attention.denominator = std::string(denominator);
  kind.attention.eps = eps;
  return Flat(x, S, z, weights, gamma, beta, kind);
}

FlatResults FlatFullSteps(const at::Tensor& x, at::TensorList keys,
                          at::TensorList values, const TensorList& weights,
                          const OptionalTensor& gamma,
                          const OptionalTensor& beta, int64_t n_heads,
                          std::optional<double> softmax_temp,
                          c10::string_view activation,
                          c10::string_view norm_kind, double norm_eps,
                          bool pre_norm) {
  Kind kind = MakeKind(n_heads, activation, norm_kind, norm_eps, pre_norm);
  kind.mixer = Mixer::kFull;
  kind.softmax_temp = softmax_temp;
  return Flat(x, keys, values, weights, gamma, beta, kind);
}

// The steps of decoders: memory_S and memory_z are the two tensors of every
// layer's memory.
FlatResults FlatDecoderSteps(
    const at::Tensor& x, at::TensorList S, at::TensorList z,
    at::TensorList memory_S, at::TensorList memory_z, const TensorList& weights,
    const OptionalTensor& gamma, const OptionalTensor& beta, int64_t n_heads,
    c10::string_view attention, c10::string_view cross_attention,
    c10::string_view feature_map, c10::string_view denominator, double eps,
    std::optional<double> softmax_temp, c10::string_view activation,
    c10::string_view norm_kind, double norm_eps, bool pre_norm) {
  Kind kind = MakeKind(n_heads, activation, norm_kind, norm_eps, pre_norm);
  kind.attention.feature_map = std::string(feature_map);
  kind.attention.denominator = std::string(denominator);
  kind.attention.eps = eps;
  kind.softmax_temp = softmax_temp;
  WithTorchErrors([&] {
    kind.mixer = ParseMixer("attention", attention);
    kind.cross = ParseMixer("cross_attention", cross_attention);
  });
  const After after = {gamma, beta, {}, {}};
  CheckLastNorm(x, after);
  std::vector<Call> layers = MakeLayers(x, S, z, weights, kind);
  WithTorchErrors([&] {
    if (memory_S.size() != layers.size() || memory_z.size() != layers.size()) {
      throw ShapeError(StrCat(kOp, ": memories"),
                       StrCat(layers.size(), " of each"),
                       StrCat(memory_S.size(), " and ", memory_z.size()));
    }
  });
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].memory_S = memory_S[i];
    layers[i].memory_z = memory_z[i];
  }
  LayersResults results = Steps(layers, x, kind, after);
  return {std::move(results.out), std::move(results.S), std::move(results.z)};
}

ThreeHeads FlatHeads(const at::Tensor& x, const TensorList& weights,
                     int64_t n_heads, c10::string_view activation,
                     c10::string_view norm_kind, double norm_eps,
                     bool pre_norm) {
  return Heads(
      MakeCall(x, weights, n_heads, activation, norm_kind, norm_eps, pre_norm));
}

at::Tensor FlatRest(const at::Tensor& x, const at::Tensor& attended,
                    const TensorList& weights, int64_t n_heads,
                    c10::string_view activation, c10::string_view norm_kind,
                    double norm_eps, bool pre_norm) {
  return Rest(
      MakeCall(x, weights, n_heads, activation, norm_kind, norm_eps, pre_norm),
      attended);
}

// One function for every device and for autograd: it decides itself which form
// serves, and the composed form is made of operators that have gradients.
TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "linear_layers_step(Tensor x, Tensor[] S, Tensor[] z, Tensor?[] weights, "
      "Tensor? gamma, Tensor? beta, int n_heads, str feature_map='elu1', "
      "str denominator='exact', float eps=1e-6, str activation='relu', str "
      "norm_kind='layer', "
      "float norm_eps=1e-5, bool pre_norm=False) -> "
      "(Tensor out, Tensor[] S, Tensor[] z)",
      &FlatSteps);
  m.def(
      "full_layers_step(Tensor x, Tensor[] keys, Tensor[] values, "
      "Tensor?[] weights, Tensor? gamma, Tensor? beta, int n_heads, "
      "float? softmax_temp=None, str activation='relu', "
      "str norm_kind='layer', float norm_eps=1e-5, bool pre_norm=False) -> "
      "(Tensor out, Tensor[] keys, Tensor[] values)",
      &FlatFullSteps);
  m.def(
      "decoder_layers_step(Tensor x, Tensor[] S, Tensor[] z, "
      "Tensor[] memory_S, Tensor[] memory_z, Tensor?[] weights, "
      "Tensor? gamma, Tensor? beta, int n_heads, str attention='linear', "
      "str cross_attention='linear', str feature_map='elu1', "
      "str denominator='exact', float eps=1e-6, float? softmax_temp=None, "
      "str activation='relu', str norm_kind='layer', float norm_eps=1e-5, "
      "bool pre_norm=False) -> (Tensor out, Tensor[] S, Tensor[] z)",
      &FlatDecoderSteps);
  m.def(
      "layer_step_heads(Tensor x, Tensor?[] weights, int n_heads, "
      "str activation='relu', str norm_kind='layer', float norm_eps=1e-5, "
      "bool pre_norm=False) -> (Tensor queries, Tensor keys, Tensor values)",
      &FlatHeads);
  m.def(
      "layer_step_rest(Tensor x, Tensor attended, Tensor?[] weights, "
      "int n_heads, str activation='relu', str norm_kind='layer', "
      "float norm_eps=1e-5, bool pre_norm=False) -> Tensor",
      &FlatRest);
}

}  // namespace
}  // namespace tarn::ops::layer_step
