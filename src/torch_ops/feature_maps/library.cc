// torch.ops.tarn.poly2, favor, rff, smoothed_rff, grf and related operators:
// compositions, which autograd and compilers see through.
#include <torch/library.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "torch_ops/common/call.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::ops {
namespace {

at::Tensor Poly2Op(const at::Tensor& x, std::optional<double> softmax_temp,
                   c10::ArrayRef<double> coefficients) {
  return WithTorchErrors([&] {
    FeatureMapOptions options;
    options.map = FeatureMap::kPoly2;
    options.softmax_temp = softmax_temp;
    options.coefficients = ThreeCoefficients(coefficients);
    return Features(options, x);
  });
}

FeatureMapOptions RandomOptions(FeatureMap map, const at::Tensor& omega,
                                std::optional<double> softmax_temp) {
  FeatureMapOptions options;
  options.map = map;
  options.omega = omega;
  options.softmax_temp = softmax_temp;
  return options;
}

at::Tensor FavorOp(const at::Tensor& x, const at::Tensor& omega,
                   std::optional<double> softmax_temp, bool positive,
                   bool stabilise) {
  FeatureMapOptions options =
      RandomOptions(positive ? FeatureMap::kFavorPositive : FeatureMap::kFavor,
                    omega, softmax_temp);
  options.stabilise = stabilise;
  return Features(options, x);
}

at::Tensor RffOp(const at::Tensor& x, const at::Tensor& omega,
                 std::optional<double> softmax_temp) {
  return Features(RandomOptions(FeatureMap::kRff, omega, softmax_temp), x);
}

at::Tensor SmoothedRffOp(const at::Tensor& x, const at::Tensor& omega,
                         std::optional<double> softmax_temp, double smoothing) {
  FeatureMapOptions options =
      RandomOptions(FeatureMap::kSmoothedRff, omega, softmax_temp);
  options.smoothing = smoothing;
  return Features(options, x);
}

// None means 1 / sqrt(K) here; the default of 1 is in the schema.
std::optional<double> GrfTemperature(std::optional<double> softmax_temp,
                                     const at::Tensor& x) {
  if (softmax_temp.has_value()) return softmax_temp;
  return 1.0 / std::sqrt(static_cast<double>(
                   x.sym_size(-1).guard_int(__FILE__, __LINE__)));
}

at::Tensor GrfOp(const at::Tensor& x, const at::Tensor& omega,
                 std::optional<double> softmax_temp) {
  return Features(
      RandomOptions(FeatureMap::kGrf, omega, GrfTemperature(softmax_temp, x)),
      x);
}

at::Tensor RandomProjectionOp(const at::Tensor& x, const at::Tensor& omega,
                              std::optional<double> softmax_temp) {
  return WithTorchErrors([&] {
    return RandomProjection(RandomOptions(FeatureMap::kGrf, omega,
                                          GrfTemperature(softmax_temp, x)),
                            x)
        .to(x.scalar_type());
  });
}

int64_t FeatureFrequenciesOp(const std::string& name, int64_t d_key,
                             int64_t n_dims) {
  return WithTorchErrors(
      [&] { return FeatureFrequencies(ParseFeatureMap(name), d_key, n_dims); });
}

int64_t FeatureWidthOp(const std::string& name, int64_t d_key, int64_t n_dims,
                       c10::ArrayRef<double> coefficients) {
  return WithTorchErrors([&] {
    return FeatureWidth(ParseFeatureMap(name), d_key, n_dims,
                        ThreeCoefficients(coefficients));
  });
}

at::Tensor DrawOmegaOp(int64_t d_key, int64_t n_freq, bool orthogonal,
                       int64_t seed, int64_t layer, int64_t step) {
  return WithTorchErrors([&] {
    if (seed < 0) {
      throw ArgumentError("draw_omega: seed", "at least 0", StrCat(seed));
    }
    return DrawOmega(d_key, n_freq, orthogonal, static_cast<uint64_t>(seed),
                     layer, step);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "poly2(Tensor x, float? softmax_temp=None, "
      "float[] coefficients=[1.0, 2.0, 1.0]) -> Tensor",
      &Poly2Op);
  m.def(
      "favor(Tensor x, Tensor omega, float? softmax_temp=None, "
      "bool positive=False, bool stabilise=False) -> Tensor",
      &FavorOp);
  m.def("rff(Tensor x, Tensor omega, float? softmax_temp=None) -> Tensor",
        &RffOp);
  m.def(
      "smoothed_rff(Tensor x, Tensor omega, float? softmax_temp=None, "
      "float smoothing=1.0) -> Tensor",
      &SmoothedRffOp);
  m.def("grf(Tensor x, Tensor omega, float? softmax_temp=1.0) -> Tensor",
        &GrfOp);
  m.def(
      "random_projection(Tensor x, Tensor omega, float? softmax_temp=1.0) -> "
      "Tensor",
      &RandomProjectionOp);
  m.def("feature_frequencies(str name, int d_key, int n_dims=0) -> int",
        &FeatureFrequenciesOp);
  m.def(
      "feature_width(str name, int d_key, int n_dims=0, "
      "float[] coefficients=[1.0, 2.0, 1.0]) -> int",
      &FeatureWidthOp);
  m.def(
      "draw_omega(int d_key, int n_freq, bool orthogonal, int seed, "
      "int layer=0, int step=0) -> Tensor",
      &DrawOmegaOp);
}

}  // namespace
}  // namespace tarn::ops
