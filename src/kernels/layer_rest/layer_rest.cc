#include "kernels/layer_rest/layer_rest.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/layer_rest/weights.h"
#include "kernels/row_tasks.h"

namespace tarn {
namespace {

void Want(const char* name, const void* data, bool empty) {
  if (data == nullptr && !empty) {
    throw ArgumentError(StrCat("layer_rest: ", name), "data", "a null pointer");
  }
}

}  // namespace

void LayerRestCheck(const LayerRestOptions& options,
                    const LayerRestShape& shape, const LayerRestWeights& w,
                    const LayerRestTensors& t) {
  if (shape.rows < 0 || shape.width < 1 || shape.mixed < 1 ||
      shape.hidden < 1) {
    throw ShapeError(
        "layer_rest: sizes", "rows >= 0 and widths of at least 1",
        ShapeText({shape.rows, shape.width, shape.mixed, shape.hidden}));
  }
  if (options.activation == Nonlinearity::kIdentity) {
    throw ArgumentError("layer_rest: activation", "relu or gelu", "identity");
  }
  for (const DropoutOptions& dropout :
       {options.mixed_dropout, options.hidden_dropout,
        options.branch_dropout}) {
    MakeDropoutKey(dropout);
  }
  const bool empty = shape.rows == 0;
  const bool layer = options.norm_kind == NormKind::kLayer;
  const bool post = w.end_gamma != nullptr;
  Want("out_weight", w.out_weight, false);
  Want("gamma", w.gamma, false);
  Want("weight1", w.weight1, false);
  Want("bias1", w.bias1, false);
  Want("weight2", w.weight2, false);
  Want("beta", w.beta, !layer);
  Want("end_beta", w.end_beta, !layer || !post);
  Want("mixed", t.mixed, empty);
  Want("s", t.s, empty);
  Want("n", t.n, empty);
  Want("kept", t.kept, empty);
  Want("mean", t.mean, empty || !layer);
  Want("inverse", t.inverse, empty);
  Want("end_s", t.end_s, empty || !post);
  Want("end_mean", t.end_mean, empty || !layer || !post);
  Want("end_inverse", t.end_inverse, empty || !post);
}

namespace {

// Takes rows of `t` through the chain.
class Chain {
 public:
  Chain(const LayerRestOptions& options, const LayerRestShape& shape,
        const LayerRestWeights& w, const LayerRestTensors& t,
        const PackedOperands& packed)
      : options_(options), shape_(shape), w_(w), t_(t), packed_(packed) {}

  // scratch: GemmRows' workspace, then one row of hidden units for each row.
  void Run(int64_t begin, int64_t end, float* scratch) const {
    const int64_t width = shape_.width, hidden = shape_.hidden;
    const int64_t rows = end - begin;
    float* h = scratch + kGemmRowsWorkspaceFloats;
    GemmRows(packed_.Product(0, shape_.rows, t_.mixed, t_.s), begin, end,
             scratch);
    AddMixed(begin, end);
    GemmRows(packed_.Product(1, shape_.rows, t_.n, t_.kept), begin, end,
             scratch);
    float* kept = t_.kept + begin * hidden;
    if (options_.activation == Nonlinearity::kRelu) h = kept;
    BiasActivationForwardRows({options_.activation, options_.hidden_dropout},
                              begin, end, hidden, kept, w_.bias1, h);
    float* sum = w_.end_gamma != nullptr ? t_.end_s : t_.y;
    GemmRows(packed_.Product(2, rows, h, sum + begin * width), 0, rows,
             scratch);
    AddBranch(begin, end, sum);
  }

 private:
  void AddMixed(int64_t begin, int64_t end) const {
    ResidualNormTensors r;
    r.residual = t_.x;
    r.x = r.s = t_.s;
    r.bias = w_.out_bias;
    r.gamma = w_.gamma;
    r.beta = w_.beta;
    r.y = t_.n;
    r.mean = t_.mean;
    r.inverse = t_.inverse;
    ResidualNormForwardRows(
        {options_.eps, options_.mixed_dropout, options_.norm_kind}, begin, end,
        shape_.width, r);
  }

  void AddBranch(int64_t begin, int64_t end, float* sum) const {
    ResidualNormTensors r;
    r.residual = w_.end_gamma != nullptr ? t_.n : t_.s;
    r.x = r.s = sum;
    r.bias = w_.bias2;
    r.gamma = w_.end_gamma;
    r.beta = w_.end_beta;
    r.y = t_.y;
    r.mean = t_.end_mean;
    r.inverse = t_.end_inverse;
    ResidualNormForwardRows(
        {options_.eps, options_.branch_dropout, options_.norm_kind}, begin, end,
        shape_.width, r);
  }

  const LayerRestOptions& options_;
  const LayerRestShape& shape_;
  const LayerRestWeights& w_;
  const LayerRestTensors& t_;
  const PackedOperands& packed_;
};

}  // namespace

int64_t LayerRestWorkspaceFloats(const LayerRestShape& shape,
                                 const Executor& executor) {
  const RowTasks tasks = RowTasks::OfProducts(shape.rows);
  return LayerRestProducts::Floats(shape) +
         executor.width() * (kGemmRowsWorkspaceFloats +
                             WholeLines(tasks.most_rows() * shape.hidden));
}

void LayerRestForward(const LayerRestOptions& options,
                      const LayerRestShape& shape,
                      const LayerRestWeights& weights,
                      const LayerRestTensors& tensors, float* workspace,
                      Executor& executor) {
  LayerRestCheck(options, shape, weights, tensors);
  Want("x", tensors.x, shape.rows == 0);
  Want("y", tensors.y, shape.rows == 0);
  if (shape.rows == 0) return;
  const PackedOperands packed(
      LayerRestProducts::Forward(shape, weights).weights, 3, workspace,
      executor);
  const Chain chain(options, shape, weights, tensors, packed);
  const RowTasks tasks = RowTasks::OfProducts(shape.rows);
  float* scratch = workspace + LayerRestProducts::Floats(shape);
  const int64_t each =
      kGemmRowsWorkspaceFloats + WholeLines(tasks.most_rows() * shape.hidden);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int worker) {
    chain.Run(tasks.begin(task), tasks.end(task), scratch + worker * each);
  });
}

}  // namespace tarn
