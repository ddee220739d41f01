// Blocks of 256 queries and keys. A weight splits into exp(w_ij - a_i) and
// exp(k_jc - b_c), a_i and b_c their maxima in the block, so a block is matrix
// products, at O(1) exponentials a pair instead of one a pair and channel.
//
// When that is safe: for any pair that is read,
//   w_ij + k_jc >= a_i + b_c - (max w - min w) - (max k - min k),
// over the entries of the block that masks leave. With the sum of both ranges
// at most kSafeRange, a sum of weights is at least exp(-kSafeRange) relative to
// a_i + b_c: with 40 in float32 that leaves a factor exp(-47) before products
// underflow, far below rounding (exp(-16)); 300 does the same in float64.
// Otherwise, and where a value is not finite (0 NaN is NaN), the block is
// computed pair by pair and channel by channel, in slices of kSliceElements.
#include "torch_ops/aft/blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "torch_ops/common/tensors.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace {

constexpr int64_t kAftBlock = 256;
constexpr int64_t kSliceElements = 1 << 20;

double SafeRange(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? 300.0 : 40.0;
}

// a b, and 0 wherever a is 0, whatever b holds.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  return at::where(a == 0, Zero(a), a * b);
}

// The largest entry of x less the smallest above -infinity, which stands for a
// weight of 0; infinite or NaN where x holds such values.
double Spread(const at::Tensor& x) {
  const at::Tensor largest = x.amax();
  const at::Tensor smallest = at::where(x == -kInfinity, largest, x).amin();
  return (largest - smallest).item<double>();
}

// Keys [begin, end) against queries [row, row_end).
struct AftBlock {
  at::Tensor k, v;  // [J, C]; -infinity in keys that are not kept
  at::Tensor w;     // [I, J]; -infinity where not allowed
  at::Tensor read;  // [I, J] bool or undefined
  bool matrix = false;
  int64_t row = 0, row_end = 0, begin = 0, end = 0;
};

// Fills in the block at (row, begin); false where none of its pairs is read.
bool MakeBlock(const AftPlane& in, int64_t row, int64_t begin,
               AftBlock* block) {
  AftBlock& b = *block;
  b.row = row;
  b.row_end = std::min(row + kAftBlock, in.queries.size(0));
  b.begin = begin;
  b.end = std::min(begin + kAftBlock, in.keys.size(0));
  if (in.causal && begin > b.row_end - 1 + in.reach) return false;
  b.w = in.position_bias.slice(0, row, b.row_end).slice(1, begin, b.end);
  b.k = in.keys.slice(0, begin, b.end);
  b.v = in.values.slice(0, begin, b.end);
  b.read = at::Tensor();
  const auto restrict_to = [&b](const at::Tensor& mask) {
    b.read = b.read.defined() ? b.read.logical_and(mask) : mask;
  };
  if (in.allowed.defined()) {
    restrict_to(in.allowed.slice(0, row, b.row_end).slice(1, begin, b.end));
  }
  if (in.causal && b.end - 1 > row + in.reach) {
    const auto options = in.keys.options().dtype(at::kLong);
    restrict_to(at::arange(b.begin, b.end, options) <=
                at::arange(b.row, b.row_end, options).unsqueeze(1) + in.reach);
  }
  if (in.kept.defined()) {
    const at::Tensor kept = in.kept.slice(0, begin, b.end);
    b.k = b.k.masked_fill(kept.logical_not().unsqueeze(1), -kInfinity);
    restrict_to(kept.unsqueeze(0));
  }
  if (b.read.defined()) {
    if (!b.read.any().item<bool>()) return false;
    b.w = b.w.masked_fill(b.read.logical_not(), -kInfinity);
  }
  b.matrix = Spread(b.w) + Spread(b.k) <= SafeRange(b.k) &&
             b.v.isfinite().all().item<bool>();
  return true;
}

// The two factors of the weights and the maxima they are relative to.
struct Factors {
  at::Tensor w, k;    // [I, J], [J, C]
  at::Tensor maxima;  // [I, C]: a_i + b_c

  explicit Factors(const AftBlock& b) {
    const at::Tensor a = FiniteOrZero(at::amax(b.w, {1}, /*keepdim=*/true));
    const at::Tensor c = FiniteOrZero(at::amax(b.k, {0}, /*keepdim=*/true));
    w = (b.w - a).exp();
    k = (b.k - c).exp();
    maxima = a + c;
  }
};

// w_ij + k_jc of rows [begin, end) of the block: [end - begin, J, C].
at::Tensor PairLogits(const AftBlock& b, int64_t begin, int64_t end) {
  at::Tensor logits = b.w.slice(0, begin, end).unsqueeze(2) + b.k.unsqueeze(0);
  if (!b.read.defined()) return logits;
  // A key that other rows read may hold NaN.
  const at::Tensor read =
      b.read.size(0) == 1 ? b.read : b.read.slice(0, begin, end);
  return logits.masked_fill(read.logical_not().unsqueeze(2), -kInfinity);
}

int64_t SliceRows(const AftBlock& b) {
  return std::max<int64_t>(1,
                           kSliceElements / std::max<int64_t>(1, b.k.numel()));
}

// Sums over the keys seen so far, relative to exp(top): [I, C] each.
struct Sums {
  at::Tensor weighted, total, top;

  void Merge(const Sums& other) {
    const at::Tensor maximum = at::maximum(top, other.top);
    const at::Tensor base = FiniteOrZero(maximum);
    const at::Tensor mine = (top - base).exp();
    const at::Tensor theirs = (other.top - base).exp();
    weighted = weighted * mine + other.weighted * theirs;
    total = total * mine + other.total * theirs;
    top = maximum;
  }
};

Sums MatrixSums(const AftBlock& b) {
  const Factors factors(b);
  Sums sums;
  sums.total = at::matmul(factors.w, factors.k);
  sums.weighted = at::matmul(factors.w, factors.k * b.v);
  // A row that reads none of the block must not raise the maximum.
  sums.top = factors.maxima.masked_fill(sums.total == 0, -kInfinity);
  return sums;
}

Sums PairSums(const AftBlock& b) {
  const int64_t rows = b.w.size(0), channels = b.k.size(1);
  Sums sums;
  sums.total = at::zeros({rows, channels}, b.k.options());
  sums.weighted = at::zeros_like(sums.total);
  sums.top = at::zeros_like(sums.total);
  for (int64_t begin = 0; begin < rows; begin += SliceRows(b)) {
    const int64_t end = std::min(begin + SliceRows(b), rows);
    const at::Tensor logits = PairLogits(b, begin, end);
    const at::Tensor top = at::amax(logits, {1});
    const at::Tensor weights = (logits - FiniteOrZero(top).unsqueeze(1)).exp();
    sums.top.slice(0, begin, end).copy_(top);
    sums.total.slice(0, begin, end).copy_(weights.sum(1));
    sums.weighted.slice(0, begin, end).copy_(Product(weights, b.v).sum(1));
  }
  return sums;
}

// What the gradient of a block reads, [I, C] each: dr = grad sigma(q) and
// dr average, the gradient's mean under the weights.
struct RowGradients {
  at::Tensor average, mean, normaliser;
};

// Sums over queries: of weights dr, and of weights dr average. [S, C] each.
struct KeySums {
  at::Tensor weighted, centred;
};

// dL/dw_ij = sum_c p_ijc (dr_ic v_jc - mean_ic).
void MatrixGradients(const AftBlock& b, const RowGradients& rows,
                     const KeySums& sums, const at::Tensor& grad_w) {
  const Factors factors(b);
  // The clamp binds only where a row reads none of the block: every product of
  // its two factors is 0 there.
  const at::Tensor scale =
      (factors.maxima - rows.normaliser).clamp_max(SafeRange(b.k)).exp();
  const at::Tensor average = scale * rows.average, mean = scale * rows.mean;
  const at::Tensor by_key = factors.w.t();
  sums.weighted.slice(0, b.begin, b.end)
      .add_(factors.k * at::matmul(by_key, average));
  sums.centred.slice(0, b.begin, b.end)
      .add_(factors.k * at::matmul(by_key, mean));
  grad_w.add_(factors.w * (at::matmul(average, (factors.k * b.v).t()) -
                           at::matmul(mean, factors.k.t())));
}

void PairGradients(const AftBlock& b, const RowGradients& rows,
                   const KeySums& sums, const at::Tensor& grad_w) {
  const int64_t count = b.w.size(0);
  for (int64_t begin = 0; begin < count; begin += SliceRows(b)) {
    const int64_t end = std::min(begin + SliceRows(b), count);
    const auto slice = [&](const at::Tensor& x) {
      return x.slice(0, begin, end).unsqueeze(1);
    };
    const at::Tensor weights =
        (PairLogits(b, begin, end) - slice(rows.normaliser)).exp();
    const at::Tensor average = slice(rows.average), mean = slice(rows.mean);
    sums.weighted.slice(0, b.begin, b.end).add_((weights * average).sum(0));
    sums.centred.slice(0, b.begin, b.end).add_((weights * mean).sum(0));
    grad_w.slice(0, begin, end)
        .add_(Product(weights, average * b.v - mean).sum(2));
  }
}

}  // namespace

void AftPlaneForward(const AftPlane& in, const AftPlaneResult& result) {
  AftBlock block;
  for (int64_t row = 0; row < in.queries.size(0); row += kAftBlock) {
    const at::Tensor q = in.queries.slice(0, row, row + kAftBlock);
    Sums sums{at::zeros_like(q), at::zeros_like(q),
              at::full(q.sizes(), -kInfinity, q.options())};
    for (int64_t begin = 0; begin < in.keys.size(0); begin += kAftBlock) {
      if (!MakeBlock(in, row, begin, &block)) continue;
      sums.Merge(block.matrix ? MatrixSums(block) : PairSums(block));
    }
    const at::Tensor none = sums.total == 0;
    const at::Tensor average =
        (sums.weighted / sums.total).masked_fill(none, 0.0);
    const auto rows = [&](const at::Tensor& x) {
      return x.slice(0, row, row + kAftBlock);
    };
    rows(result.average).copy_(average);
    rows(result.out).copy_((at::sigmoid(q) * average).masked_fill(none, 0.0));
    rows(result.normaliser)
        .copy_((sums.total.log() + sums.top).masked_fill(none, kInfinity));
  }
}

void AftPlaneBackward(const AftPlane& in, const AftPlaneResult& result,
                      const at::Tensor& grad_out,
                      const AftPlaneGradients& gradients) {
  AftBlock block;
  const KeySums sums{at::zeros_like(in.keys), at::zeros_like(in.keys)};
  for (int64_t row = 0; row < in.queries.size(0); row += kAftBlock) {
    const auto rows = [&](const at::Tensor& x) {
      return x.slice(0, row, row + kAftBlock);
    };
    const at::Tensor gate = at::sigmoid(rows(in.queries));
    const at::Tensor grad = rows(grad_out), average = rows(result.average);
    rows(gradients.queries)
        .copy_(Product(Product(grad, average), gate * (1 - gate)));
    RowGradients r;
    r.average = Product(grad, gate);
    r.mean = Product(r.average, average);
    r.normaliser = rows(result.normaliser);
    for (int64_t begin = 0; begin < in.keys.size(0); begin += kAftBlock) {
      if (!MakeBlock(in, row, begin, &block)) continue;
      const at::Tensor grad_w =
          gradients.position_bias.slice(0, block.row, block.row_end)
              .slice(1, block.begin, block.end);
      const auto run = block.matrix ? &MatrixGradients : &PairGradients;
      run(block, r, sums, grad_w);
    }
  }
  gradients.values.copy_(sums.weighted);
  gradients.keys.copy_(Product(sums.weighted, in.values) - sums.centred);
}

}  // namespace tarn::ops
