#include "kernels/layer_heads/layer_heads.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "kernels/bias_activation/bias_activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/packed_operands.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/row_tasks.h"

namespace tarn {
namespace {

void Want(const char* name, const void* data, bool wanted) {
  if (data != nullptr || !wanted) return;
  throw ArgumentError(StrCat("layer_heads: ", name), "data", "a null pointer");
}

void Check(const LayerHeadsCall& call) {
  if (call.count < 1 || call.count > kMostHeadMaps) {
    throw ArgumentError("layer_heads: maps", StrCat("1 to ", kMostHeadMaps),
                        StrCat(call.count));
  }
  for (int64_t i = 0; i < call.count; ++i) {
    if (call.maps[i].outputs < 1) {
      throw ShapeError("layer_heads: outputs", "at least 1",
                       StrCat(call.maps[i].outputs));
    }
    Want("weight", call.maps[i].weight, true);
  }
  if (call.rows < 0 || call.width < 1) {
    throw ShapeError("layer_heads: x", "rows >= 0 and a width of at least 1",
                     ShapeText({call.rows, call.width}));
  }
  const bool norm = call.gamma != nullptr && call.rows > 0;
  const bool layer = call.norm_kind == NormKind::kLayer;
  Want("x", call.x, call.rows > 0);
  Want("beta", call.beta, norm && layer);
  Want("n", call.n, norm);
  Want("mean", call.mean, norm && layer);
  Want("inverse", call.inverse, norm);
}

// The rows that the maps read.
const float* Read(const LayerHeadsCall& call) {
  return call.gamma != nullptr ? call.n : call.x;
}

struct Weights {
  GemmWeight all[kMostHeadMaps];
};

Weights ForwardWeights(const LayerHeadsCall& call) {
  Weights w;
  for (int64_t i = 0; i < call.count; ++i) {
    const LayerHeadsMap& map = call.maps[i];
    w.all[i] = {{map.weight, call.width, true}, call.width, map.outputs};
  }
  return w;
}

Weights BackwardWeights(const LayerHeadsCall& call) {
  Weights w;
  for (int64_t i = 0; i < call.count; ++i) {
    const LayerHeadsMap& map = call.maps[i];
    w.all[i] = {{map.weight, call.width, false}, map.outputs, call.width};
  }
  return w;
}

void ForwardRows(const LayerHeadsCall& call, const PackedOperands& packed,
                 int64_t begin, int64_t end, float* scratch) {
  if (call.gamma != nullptr) {
    ResidualNormTensors r;
    r.x = call.x;
    r.gamma = call.gamma;
    r.beta = call.beta;
    r.y = call.n;
    r.mean = call.mean;
    r.inverse = call.inverse;
    ResidualNormForwardRows({call.eps, {}, call.norm_kind}, begin, end,
                            call.width, r);
  }
  const int64_t stride = call.outputs();
  float* y = call.y;
  for (int64_t i = 0; i < call.count; ++i) {
    GemmProblem product = packed.Product(i, call.rows, Read(call), y);
    product.c_stride = stride;
    const LayerHeadsMap& map = call.maps[i];
    for (int64_t m = begin; map.bias != nullptr && m < end; ++m) {
      std::copy(map.bias, map.bias + map.outputs, y + m * stride);
    }
    product.add = map.bias != nullptr;
    GemmRows(product, begin, end, scratch);
    y += map.outputs;
  }
}

// sums: [3, D] of the norm, then those of the biases.
void BackwardRows(const LayerHeadsCall& call, const LayerHeadsGradients& g,
                  const PackedOperands& packed, int64_t begin, int64_t end,
                  float* sums, float* scratch) {
  const int64_t stride = call.outputs();
  BiasActivationGradients biases;
  biases.grad_y = g.grad_y;
  BiasActivationBackwardRows({}, begin, end, stride, biases,
                             sums + 3 * call.width);
  if (g.grad_x == nullptr) return;
  const float* grad_y = g.grad_y;
  for (int64_t i = 0; i < call.count; ++i) {
    GemmProblem product = packed.Product(i, call.rows, grad_y, g.grad_x);
    product.a.stride = stride;
    product.add = i > 0;
    GemmRows(product, begin, end, scratch);
    grad_y += call.maps[i].outputs;
  }
  if (call.gamma == nullptr) return;
  ResidualNormGradients r;
  r.grad_y = g.grad_x;
  r.s = call.x;
  r.mean = call.mean;
  r.inverse = call.inverse;
  r.gamma = call.gamma;
  r.beta = call.beta;
  r.y_again = call.n;
  r.grad_residual = g.grad_x;
  r.grad_gamma = g.grad_gamma;
  r.grad_beta = g.grad_beta;
  ResidualNormBackwardRows({call.eps, {}, call.norm_kind}, begin, end,
                           call.width, r, sums);
}

void AddUp(const LayerHeadsCall& call, const LayerHeadsGradients& g,
           const RowTasks& tasks, const float* sums, int64_t floats) {
  const auto add = [&](int64_t from, int64_t count, float* to) {
    if (to != nullptr) tasks.AddUp(sums + from, floats, count, to);
  };
  add(call.width, call.width, g.grad_gamma);
  add(2 * call.width, call.width, g.grad_beta);
  int64_t from = 3 * call.width;
  for (int64_t i = 0; i < call.count; ++i) {
    add(from, call.maps[i].outputs, g.grad_biases[i]);
    from += call.maps[i].outputs;
  }
}

// dW_i = dy_i^T n.
void WeightGradients(const LayerHeadsCall& call, const LayerHeadsGradients& g,
                     float* scratch, Executor& executor) {
  GemmProblem problems[kMostHeadMaps];
  const float* grad_y = g.grad_y;
  for (int64_t i = 0; i < call.count; ++i) {
    const int64_t outputs = call.maps[i].outputs;
    GemmProblem& problem = problems[i];
    problem.rows = outputs;
    problem.columns = call.width;
    problem.depth = call.rows;
    problem.a = {grad_y, call.outputs(), true};
    problem.b = {Read(call), call.width, false};
    problem.c = g.grad_weights[i];
    problem.c_stride = call.width;
    grad_y += outputs;
  }
  GemmMany(problems, call.count, scratch, executor);
}

int64_t PackedFloats(const LayerHeadsCall& call) {
  return std::max(
      PackedOperands::Floats(ForwardWeights(call).all, call.count),
      PackedOperands::Floats(BackwardWeights(call).all, call.count));
}

int64_t SumFloats(const LayerHeadsCall& call) {
  return 3 * call.width + call.outputs();
}

}  // namespace

int64_t LayerHeadsWorkspaceFloats(const LayerHeadsCall& call,
                                  const Executor& executor) {
  return PackedFloats(call) + GemmWorkspaceFloats(executor);
}

int64_t LayerHeadsGradientWorkspaceFloats(const LayerHeadsCall& call,
                                          const Executor& executor) {
  return LayerHeadsWorkspaceFloats(call, executor) +
         RowTasks::OfProducts(call.rows).count() * SumFloats(call);
}

void LayerHeadsForward(const LayerHeadsCall& call, float* workspace,
                       Executor& executor) {
  Check(call);
  Want("y", call.y, call.rows > 0);
  if (call.rows == 0) return;
  const PackedOperands packed(ForwardWeights(call).all, call.count, workspace,
                              executor);
  const RowTasks tasks = RowTasks::OfProducts(call.rows);
  float* scratch = workspace + PackedFloats(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int worker) {
    ForwardRows(call, packed, tasks.begin(task), tasks.end(task),
                scratch + worker * kGemmRowsWorkspaceFloats);
  });
}

void LayerHeadsBackward(const LayerHeadsCall& call,
                        const LayerHeadsGradients& g, float* workspace,
                        Executor& executor) {
  Check(call);
  Want("grad_y", g.grad_y, call.rows > 0);
  Want("grad_x", g.grad_x, call.rows > 0 && call.gamma != nullptr);
  for (int64_t i = 0; i < call.count; ++i) {
    Want("grad_weight", g.grad_weights[i], true);
  }
  const PackedOperands packed(BackwardWeights(call).all, call.count, workspace,
                              executor);
  const RowTasks tasks = RowTasks::OfProducts(call.rows);
  const int64_t floats = SumFloats(call);
  float* scratch = workspace + PackedFloats(call);
  float* sums = scratch + GemmWorkspaceFloats(executor);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int worker) {
    BackwardRows(call, g, packed, tasks.begin(task), tasks.end(task),
                 sums + task * floats,
                 scratch + worker * kGemmRowsWorkspaceFloats);
  });
  AddUp(call, g, tasks, sums, floats);
  WeightGradients(call, g, scratch, executor);
}

}  // namespace tarn
