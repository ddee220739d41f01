// The feature maps that kernels do not hold, from plain torch operators.
// Sources: poly2 Katharopoulos et al. 2020 (arXiv 2006.16236), section 3.2.1;
// favor, grf Choromanski et al. 2021 (arXiv 2009.14794), section 2; rff Rahimi
// and Recht 2007, algorithm 1.
#include "torch_ops/feature_maps/feature_maps.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

// The enumerator of that name, up to `last`; the error lists all names.
template <typename Enum>
Enum Parse(const char* argument, const std::string& name, Enum last) {
  std::string all;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Enum>(i);
    if (name == Name(value)) return value;
    all += StrCat(i == 0 ? "" : ", ", Name(value));
  }
  throw ArgumentError(argument, StrCat("one of ", all), name);
}

std::string Where(FeatureMap map, const char* argument) {
  return StrCat("feature map ", Name(map), ": ", argument);
}

void WantCoefficients(const std::array<double, 3>& a) {
  for (const double value : a) {
    if (value >= 0 && std::isfinite(value)) continue;
    throw ArgumentError(Where(FeatureMap::kPoly2, "coefficients"),
                        "three finite numbers of at least 0", StrCat(value));
  }
  if (a[0] == 0 && a[1] == 0 && a[2] == 0) {
    throw ArgumentError(Where(FeatureMap::kPoly2, "coefficients"),
                        "one of them positive", "0, 0, 0");
  }
}

// The type in which features of x are computed.
at::ScalarType WideType(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void WantRows(FeatureMap map, const at::Tensor& x) {
  if (!x.is_floating_point()) {
    throw DTypeError(Where(map, "x"), "a floating point tensor",
                     StrCat(x.scalar_type()));
  }
  if (x.dim() < 1 || x.sym_size(-1) < 1) {
    throw ShapeError(Where(map, "x"), "[..., K] with K >= 1",
                     StrCat(x.dim(), " axes, ", x.numel(), " entries"));
  }
}

int64_t Width(const at::Tensor& x) {
  return x.sym_size(-1).guard_int(__FILE__, __LINE__);
}

// x~ in the wide type.
at::Tensor Tempered(const FeatureMapOptions& options, const at::Tensor& x) {
  WantRows(options.map, x);
  return x.to(WideType(x)) * TemperatureRoot(options, Width(x));
}

// A column [..., 1] of one value for the rows of x.
at::Tensor Column(const at::Tensor& x, double value) {
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes.back() = 1;
  return at::full_symint(sizes, value, x.options());
}

const at::Tensor& Omega(const FeatureMapOptions& options, int64_t d_key) {
  const auto refuse = [&](const std::string& given) {
    throw ShapeError(Where(options.map, "omega"),
                     StrCat("[", d_key, ", n_freq] with n_freq >= 1"), given);
  };
  if (!options.omega.has_value() || !options.omega->defined()) refuse("none");
  const at::Tensor& omega = *options.omega;
  if (omega.dim() != 2 || omega.sym_size(0) != d_key || omega.sym_size(1) < 1) {
    refuse(StrCat(omega.sym_sizes()));
  }
  if (!omega.is_floating_point()) {
    throw DTypeError(Where(options.map, "omega"), "a floating point tensor",
                     StrCat(omega.scalar_type()));
  }
  return omega;
}

// u = omega^T x~ of rows that are tempered already.
at::Tensor Project(const FeatureMapOptions& options, const at::Tensor& x) {
  return at::matmul(x, Omega(options, Width(x)).to(x.scalar_type()));
}

// Kernel a0 + a1 y + a2 y^2 of y = x~.y~, feature by feature.
at::Tensor Poly2(const FeatureMapOptions& options, const at::Tensor& rows) {
  const auto& a = options.coefficients;
  WantCoefficients(a);
  const at::Tensor x = Tempered(options, rows);
  const int64_t d_key = Width(x);
  std::vector<at::Tensor> parts;
  if (a[0] > 0) parts.push_back(Column(x, std::sqrt(a[0])));
  if (a[1] > 0) parts.push_back(x * std::sqrt(a[1]));
  if (a[2] > 0) {
    parts.push_back(x.square() * std::sqrt(a[2]));
    // Slices are used, as the gradient of index_select scatters one by one.
    const at::Tensor scaled = x * std::sqrt(2 * a[2]);
    for (int64_t i = 0; i + 1 < d_key; ++i) {
      parts.push_back(scaled.narrow(-1, i, 1) *
                      x.narrow(-1, i + 1, d_key - i - 1));
    }
  }
  return at::cat(parts, -1);
}

at::Tensor Favor(const FeatureMapOptions& options, const at::Tensor& x) {
  at::Tensor exponents = FavorExponents(options, x, /*with_norm=*/true);
  if (options.stabilise) {
    exponents =
        exponents - at::amax(exponents.detach(), {-1}, /*keepdim=*/true);
  }
  return exponents.exp() *
         (1.0 / std::sqrt(static_cast<double>(Width(exponents))));
}

at::Tensor Rff(const FeatureMapOptions& options, const at::Tensor& x) {
  const at::Tensor u = RandomProjection(options, x);
  const double factor = 1.0 / std::sqrt(static_cast<double>(Width(u)));
  std::vector<at::Tensor> parts = {u.cos() * factor, u.sin() * factor};
  if (options.map == FeatureMap::kSmoothedRff) {
    if (!std::isfinite(options.smoothing)) {
      throw ArgumentError(Where(options.map, "smoothing"), "a finite number",
                          StrCat(options.smoothing));
    }
    parts.push_back(Column(u, options.smoothing));
  }
  return at::cat(parts, -1);
}

at::Tensor WideFeatures(const FeatureMapOptions& options, const at::Tensor& x) {
  if (IsElementwise(options.map)) {
    return ElementwiseFeatures(options.map, x.to(WideType(x)));
  }
  if (Traits(options.map).pairs) return Poly2(options, x);
  if (Traits(options.map).can_stabilise) return Favor(options, x);
  if (Traits(options.map).is_signed) return Rff(options, x);
  const at::Tensor u = RandomProjection(options, x);
  return options.kernel_fn ? options.kernel_fn(u) : u.relu();
}

}  // namespace

int64_t FeatureFrequencies(FeatureMap map, int64_t d_key, int64_t n_dims) {
  if (d_key < 1) {
    throw ArgumentError("feature_width: d_key", "at least 1", StrCat(d_key));
  }
  if (!UsesOmega(map)) return 0;
  const FeatureMapTraits& traits = Traits(map);
  const int64_t dims = n_dims == 0 ? d_key : n_dims;
  const int64_t least = traits.features_per_column + traits.constant_features;
  if (dims < least) {
    throw ArgumentError(Where(map, "n_dims"), StrCat("at least ", least),
                        StrCat(dims));
  }
  return (dims - traits.constant_features) / traits.features_per_column;
}

int64_t FeatureWidth(FeatureMap map, int64_t d_key, int64_t n_dims,
                     const std::array<double, 3>& coefficients) {
  const int64_t frequencies = FeatureFrequencies(map, d_key, n_dims);
  const FeatureMapTraits& traits = Traits(map);
  if (traits.elementwise) return d_key;
  if (traits.uses_omega()) {
    return traits.features_per_column * frequencies + traits.constant_features;
  }
  WantCoefficients(coefficients);  // of pairs
  const auto& a = coefficients;
  return (a[0] > 0 ? 1 : 0) + (a[1] > 0 ? d_key : 0) +
         (a[2] > 0 ? d_key * (d_key + 1) / 2 : 0);
}

Denominator DefaultDenominator(const FeatureMapOptions& options) {
  if (options.query_fn || options.key_fn) return Denominator::kSigned;
  switch (options.map) {
    case FeatureMap::kIdentity:
    case FeatureMap::kPoly2:
    case FeatureMap::kRff:
    case FeatureMap::kSmoothedRff:
      return Denominator::kSigned;
    case FeatureMap::kGrf:
      return options.kernel_fn ? Denominator::kSigned : Denominator::kExact;
    case FeatureMap::kElu1:
    case FeatureMap::kRelu:
    case FeatureMap::kRelu2:
    case FeatureMap::kSoftplus:
    case FeatureMap::kFavor:
    case FeatureMap::kFavorPositive:
      break;
  }
  return Denominator::kExact;
}

double TemperatureRoot(const FeatureMapOptions& options, int64_t d_key) {
  if (!options.softmax_temp.has_value()) {
    if (options.map == FeatureMap::kGrf || IsElementwise(options.map)) return 1;
    return 1.0 / std::sqrt(std::sqrt(static_cast<double>(d_key)));
  }
  if (IsElementwise(options.map)) {
    throw ArgumentError(Where(options.map, "softmax_temp"),
                        "none, as the map has no temperature",
                        StrCat(*options.softmax_temp));
  }
  if (!(*options.softmax_temp >= 0) || !std::isfinite(*options.softmax_temp)) {
    throw ArgumentError(Where(options.map, "softmax_temp"),
                        "a finite number of at least 0",
                        StrCat(*options.softmax_temp));
  }
  return std::sqrt(*options.softmax_temp);
}

at::Tensor RandomProjection(const FeatureMapOptions& options,
                            const at::Tensor& x) {
  return Project(options, Tempered(options, x));
}

at::Tensor FavorExponents(const FeatureMapOptions& options, const at::Tensor& x,
                          bool with_norm) {
  const at::Tensor tempered = Tempered(options, x);
  const at::Tensor u = Project(options, tempered);
  const at::Tensor exponents =
      options.map == FeatureMap::kFavorPositive ? u : at::cat({u, -u}, -1);
  if (!with_norm) return exponents;
  return exponents - tempered.square().sum(-1, /*keepdim=*/true) * 0.5;
}

FeatureMap ParseFeatureMap(const std::string& name) {
  return Parse<FeatureMap>("feature_map", name, FeatureMap::kGrf);
}

Denominator ParseDenominator(const std::string& name) {
  return Parse<Denominator>("denominator", name, Denominator::kSigned);
}

std::array<double, 3> ThreeCoefficients(c10::ArrayRef<double> values) {
  if (values.size() != 3) {
    throw ArgumentError(Where(FeatureMap::kPoly2, "coefficients"),
                        "three numbers", StrCat(values.size()));
  }
  return {values[0], values[1], values[2]};
}

at::Tensor Features(const FeatureMapOptions& options, const at::Tensor& x) {
  return WithTorchErrors(
      [&] { return WideFeatures(options, x).to(x.scalar_type()); });
}

}  // namespace tarn::ops
