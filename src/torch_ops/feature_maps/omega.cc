// Random directions of feature maps, drawn from the counter-based generator:
// the same for every process, thread count and resumed run.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::ops {
namespace {

// Keeps these draws apart from others that use the same seed ("omega").
constexpr uint64_t kKey = 0x6F6D656761;
constexpr int kStepBits = 40, kLayerBits = 24;

void Want(const char* argument, int64_t value, int64_t least, int64_t end) {
  if (value >= least && value < end) return;
  throw ArgumentError(StrCat("draw_omega: ", argument),
                      StrCat("from ", least, " to ", end - 1), StrCat(value));
}

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void Normals(Rng& rng, Vector& x) {
  for (double& entry : x) entry = rng.Normal();
}

// Makes x a unit vector orthogonal to `others`. On Gaussian vectors this is the
// QR decomposition with a positive diagonal, whose Q is Haar distributed
// (Mezzadri 2007, arXiv math-ph/0609050). The second pass removes what rounding
// left of the first.
void Orthonormalise(const std::vector<Vector>& others, Vector& x) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const Vector& other : others) {
      const double overlap = Dot(other, x);
      for (size_t i = 0; i < x.size(); ++i) x[i] -= overlap * other[i];
    }
  }
  const double inverse = 1 / std::sqrt(Dot(x, x));
  for (double& entry : x) entry *= inverse;
}

}  // namespace

at::Tensor DrawOmega(int64_t d_key, int64_t n_freq, bool orthogonal,
                     uint64_t seed, int64_t layer, int64_t step) {
  constexpr int64_t kMostEntries = int64_t{1} << 31;
  Want("d_key", d_key, 1, int64_t{1} << 16);
  Want("n_freq", n_freq, 1, kMostEntries / d_key);
  Want("layer", layer, 0, int64_t{1} << kLayerBits);
  Want("step", step, 0, int64_t{1} << kStepBits);
  Rng rng(seed ^ kKey, static_cast<uint64_t>(layer) << kStepBits |
                           static_cast<uint64_t>(step));
  at::Tensor omega = at::empty({d_key, n_freq}, at::kFloat);
  float* entries = omega.data_ptr<float>();
  std::vector<Vector> block;  // unit columns of the current block
  Vector column(static_cast<size_t>(d_key)), length(column.size());
  for (int64_t f = 0; f < n_freq; ++f) {
    Normals(rng, column);
    if (orthogonal) {
      if (f % d_key == 0) block.clear();
      Orthonormalise(block, column);
      block.push_back(column);
      // A Gaussian vector's norm is independent of its direction.
      Normals(rng, length);
      const double norm = std::sqrt(Dot(length, length));
      for (double& entry : column) entry *= norm;
    }
    for (int64_t k = 0; k < d_key; ++k) {
      entries[k * n_freq + f] =
          static_cast<float>(column[static_cast<size_t>(k)]);
    }
  }
  return omega;
}

}  // namespace tarn::ops
