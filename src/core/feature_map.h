// Feature maps phi and the treatments of the denominator: the terms that
// kernels, configuration and operators share. One row of a table says
// everything about a map except its arithmetic; all users read that row, so
// that nothing depends on the order of the enumerators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn {

// "elu1", "identity", "relu", "relu2", "softplus" act on single entries and
// live in the kernels; the others have a width of their own and are computed
// before the kernels.
enum class FeatureMap {
  kElu1,
  kIdentity,
  kRelu,
  kRelu2,          // max(x, 0)^2
  kSoftplus,       // log(1 + exp(x))
  kPoly2,          // polynomial kernel of degree 2
  kFavor,          // positive random features, pairs exp(u), exp(-u)
  kFavorPositive,  // "favor-positive": exp(u) only
  kRff,            // random Fourier features
  kSmoothedRff,    // "smoothed-rff": rff and a constant feature
  kGrf             // generalised random features f(omega^T x)
};

enum class Denominator {
  kExact,
  kCompat,  // + eps
  kNone,
  kSigned  // size kept away from 0, for maps with negative features
};

/// The least exact denominator of a row that is not empty. The reciprocal of a
/// smaller one is infinite.
inline constexpr float kLeastDenominator = 0x1p-126f;
/// Gradients divide by no less, since their products with a reciprocal must
/// stay finite: below it they shrink with the denominator.
inline constexpr float kLeastGradientDivisor = 0x1p-120f;

/// The exact denominator of a row: 0 if the row is empty; NaN stays NaN.
constexpr float ExactDenominator(float sum) {
  return sum < kLeastDenominator ? 0.0f : sum;
}
/// What the gradient of a row divides by, which is not empty.
constexpr float GradientDivisor(Denominator denominator, float value) {
  return denominator == Denominator::kExact && value < kLeastGradientDivisor
             ? kLeastGradientDivisor
             : value;
}

/// One row of the table of maps.
struct FeatureMapTraits {
  FeatureMap map;
  const char* name;  // in config.json, flags and Python
  bool elementwise;  // phi acts on single entries: the kernels compute it
  bool is_signed;  // sums of features may pass through 0: "signed" is the rule
  bool pairs;      // 1, the entries and their products: poly2
  bool can_stabilise;  // exponentials, which a running maximum keeps in range
  // Maps through random directions, the columns of omega [d_key, columns]:
  // features of one column (0: no omega), and additional constant features.
  int features_per_column;
  int constant_features;
  bool orthogonal;  // directions: orthogonal for favor, grf; else independent

  constexpr bool uses_omega() const { return features_per_column > 0; }
};

/// Every map, in the order of its enum.
// map, name, elementwise, signed, pairs, can stabilise, features per column,
// constants, orthogonal
inline constexpr FeatureMapTraits kFeatureMaps[] = {
    {FeatureMap::kElu1, "elu1", true, false, false, false, 0, 0, false},
    {FeatureMap::kIdentity, "identity", true, false, false, false, 0, 0, false},
    {FeatureMap::kRelu, "relu", true, false, false, false, 0, 0, false},
    {FeatureMap::kRelu2, "relu2", true, false, false, false, 0, 0, false},
    {FeatureMap::kSoftplus, "softplus", true, false, false, false, 0, 0, false},
    {FeatureMap::kPoly2, "poly2", false, false, true, false, 0, 0, false},
    {FeatureMap::kFavor, "favor", false, false, false, true, 2, 0, true},
    {FeatureMap::kFavorPositive, "favor-positive", false, false, false, true, 1,
     0, true},
    {FeatureMap::kRff, "rff", false, true, false, false, 2, 0, false},
    {FeatureMap::kSmoothedRff, "smoothed-rff", false, true, false, false, 2, 1,
     false},
    {FeatureMap::kGrf, "grf", false, false, false, false, 1, 0, true},
};

constexpr const FeatureMapTraits& Traits(FeatureMap map) {
  return kFeatureMaps[static_cast<size_t>(map)];
}
constexpr const char* Name(FeatureMap map) { return Traits(map).name; }

/// Maps that act on single entries, so that the kernels compute them.
constexpr bool IsElementwise(FeatureMap map) { return Traits(map).elementwise; }
/// Maps through random directions, the columns of a matrix omega.
constexpr bool UsesOmega(FeatureMap map) { return Traits(map).uses_omega(); }

/// Columns of omega [d_key, columns]; 0 for maps without one. n_dims as
/// FinishConfig leaves it. favor and rff make two features of each column.
constexpr int64_t OmegaColumns(FeatureMap map, int64_t n_dims) {
  const FeatureMapTraits& row = Traits(map);
  if (!row.uses_omega()) return 0;
  return (n_dims - row.constant_features) / row.features_per_column;
}

/// Features of one query or key, the width of the linear state.
constexpr int64_t FeatureWidth(FeatureMap map, int64_t d_key, int64_t n_dims) {
  const FeatureMapTraits& row = Traits(map);
  if (row.pairs) return 1 + d_key + d_key * (d_key + 1) / 2;
  if (!row.uses_omega()) return d_key;
  return row.features_per_column * OmegaColumns(map, n_dims) +
         row.constant_features;
}

namespace feature_map_internal {
constexpr bool InOrder() {
  size_t i = 0;
  for (const FeatureMapTraits& row : kFeatureMaps) {
    if (static_cast<size_t>(row.map) != i++) return false;
  }
  return true;
}
static_assert(InOrder(), "a row is at the index of its enumerator");
}  // namespace feature_map_internal

constexpr const char* Name(Denominator denominator) {
  switch (denominator) {
    case Denominator::kExact:
      return "exact";
    case Denominator::kCompat:
      return "compat";
    case Denominator::kNone:
      return "none";
    case Denominator::kSigned:
      return "signed";
  }
  return "";
}

}  // namespace tarn
