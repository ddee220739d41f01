// The gradient, in two loops per block of rows: rows back through the chain,
// then the gradients of the weights, which sum over the rows.
#include <algorithm>

#include "core/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/layer_rest/layer_rest.h"
#include "kernels/layer_rest/weights.h"
#include "kernels/row_tasks.h"

namespace tarn {
namespace {

// Where each task leaves its part of the sums over rows.
struct Sums {
  int64_t width, hidden;
  int64_t floats() const { return 6 * width + hidden; }
  float* mixed(float* own) const { return own; }  // bias, gamma, beta
  float* branch(float* own) const { return own + 3 * width; }
  float* bias1(float* own) const { return own + 6 * width; }
};

class Backward {
 public:
  Backward(const LayerRestOptions& options, const LayerRestShape& shape,
           const LayerRestWeights& w, const LayerRestTensors& t,
           const LayerRestGradients& g, const PackedOperands& packed)
      : options_(options),
        shape_(shape),
        w_(w),
        t_(t),
        g_(g),
        packed_(packed),
        sums_{shape.width, shape.hidden} {}

  bool post() const { return w_.end_gamma != nullptr; }
  bool drops_branch() const { return options_.branch_dropout.probability > 0; }
  bool drops_mixed() const { return options_.mixed_dropout.probability > 0; }
  // The gradient of h W2^T + b2.
  const float* branch() const {
    return post() || drops_branch() ? g_.grad_branch : g_.grad_y;
  }
  // The gradient of mixed Wo^T + bo.
  const float* out() const { return drops_mixed() ? g_.grad_out : g_.grad_x; }
  const float* hidden() const {
    return options_.activation == Nonlinearity::kRelu ? t_.kept : g_.hidden;
  }

  void Run(int64_t begin, int64_t end, float* sums, float* scratch) const {
    LeaveBranch(begin, end, sums_.branch(sums));
    GemmRows(packed_.Product(0, shape_.rows, branch(), g_.grad_hidden), begin,
             end, scratch);
    LeaveActivation(begin, end, sums_.bias1(sums));
    // The gradient of n is written where that of x will be.
    GemmRows(packed_.Product(1, shape_.rows, g_.grad_hidden, g_.grad_x), begin,
             end, scratch);
    LeaveNorm(begin, end, sums_.mixed(sums));
    GemmRows(packed_.Product(2, shape_.rows, out(), g_.grad_mixed), begin, end,
             scratch);
  }

  // Adds up the sums of all blocks, `tasks` in all.
  void AddUp(int64_t tasks, float* sums) const {
    const int64_t width = shape_.width;
    const auto add = [&](float* from, int64_t count, float* to) {
      if (to != nullptr) AddUpTasks(tasks, from, sums_.floats(), count, to);
    };
    add(sums_.mixed(sums), width, g_.grad_out_bias);
    add(sums_.mixed(sums) + width, width, g_.grad_gamma);
    add(sums_.mixed(sums) + 2 * width, width, g_.grad_beta);
    add(sums_.branch(sums), width, g_.grad_bias2);
    add(sums_.branch(sums) + width, width, g_.grad_end_gamma);
    add(sums_.branch(sums) + 2 * width, width, g_.grad_end_beta);
    add(sums_.bias1(sums), shape_.hidden, g_.grad_bias1);
  }

  // dW = dy^T x for all three weights, added to what earlier blocks left.
  void Weights(bool add, float* workspace, Executor& executor) const {
    const int64_t width = shape_.width, hidden_width = shape_.hidden;
    GemmProblem problems[] = {
        Outer(branch(), width, hidden(), hidden_width, g_.grad_weight2),
        Outer(g_.grad_hidden, hidden_width, t_.n, width, g_.grad_weight1),
        Outer(out(), width, t_.mixed, shape_.mixed, g_.grad_out_weight)};
    for (GemmProblem& problem : problems) problem.add = add;
    GemmMany(problems, 3, workspace, executor);
  }

 private:
  GemmProblem Outer(const float* dy, int64_t outputs, const float* x,
                    int64_t inputs, float* dw) const {
    GemmProblem problem;
    problem.rows = outputs;
    problem.columns = inputs;
    problem.depth = shape_.rows;
    problem.a = {dy, outputs, true};
    problem.b = {x, inputs, false};
    problem.c = dw;
    problem.c_stride = inputs;
    return problem;
  }

  // The gradient of the last residual's base, where that is n.
  float* base() const { return drops_branch() ? g_.grad_base : g_.grad_branch; }

  // Goes back through the last residual, its norm and dropout.
  void LeaveBranch(int64_t begin, int64_t end, float* sums) const {
    ResidualNormGradients r;
    ResidualNormOptions options = {options_.eps, options_.branch_dropout,
                                   options_.norm_kind};
    r.grad_bias = g_.grad_bias2;
    if (post()) {
      r.grad_y = g_.grad_y;
      r.s = t_.end_s;
      r.mean = t_.end_mean;
      r.inverse = t_.end_inverse;
      r.gamma = w_.end_gamma;
      r.grad_gamma = g_.grad_end_gamma;
      r.grad_beta = g_.grad_end_beta;
      r.grad_residual = base();
    } else {
      r.grad_s = g_.grad_y;
    }
    if (drops_branch()) r.grad_x = g_.grad_branch;
    ResidualNormBackwardRows(options, begin, end, shape_.width, r, sums);
  }

  void LeaveActivation(int64_t begin, int64_t end, float* sums) const {
    const int64_t width = shape_.hidden;
    const BiasActivationOptions options = {options_.activation,
                                           options_.hidden_dropout};
    BiasActivationGradients a;
    a.grad_y = a.grad_x = g_.grad_hidden;
    if (options_.activation == Nonlinearity::kRelu) {
      a.y = t_.kept;
    } else {
      a.x = t_.kept;
      a.bias = w_.bias1;
      a.y_again = g_.hidden;
    }
    BiasActivationBackwardRows(options, begin, end, width, a, sums);
  }

  void LeaveNorm(int64_t begin, int64_t end, float* sums) const {
    const int64_t width = shape_.width;
    ResidualNormGradients r;
    r.grad_y = g_.grad_x;
    r.s = t_.s;
    r.mean = t_.mean;
    r.inverse = t_.inverse;
    r.gamma = w_.gamma;
    r.beta = w_.beta;
    r.y_again = t_.n;
    if (post()) {
      const float* more = base();
      for (int64_t i = begin * width; i < end * width; ++i) {
        g_.grad_x[i] += more[i];
      }
    } else {
      r.grad_s = g_.grad_y;
    }
    r.grad_residual = g_.grad_x;
    if (drops_mixed()) r.grad_x = g_.grad_out;
    r.grad_bias = g_.grad_out_bias;
    r.grad_gamma = g_.grad_gamma;
    r.grad_beta = g_.grad_beta;
    ResidualNormBackwardRows(
        {options_.eps, options_.mixed_dropout, options_.norm_kind}, begin, end,
        width, r, sums);
  }

  const LayerRestOptions& options_;
  const LayerRestShape& shape_;
  const LayerRestWeights& w_;
  const LayerRestTensors& t_;
  const LayerRestGradients& g_;
  const PackedOperands& packed_;
  Sums sums_;
};

RowTasks BlockTasks(const LayerRestShape& shape, int64_t row) {
  return RowTasks::OfProducts(LayerRestBlockRows(shape.rows - row));
}

// The rows of one block, as a call of their own.
struct Block {
  LayerRestOptions options;
  LayerRestShape shape;
  LayerRestTensors tensors;
  LayerRestGradients gradients;

  Block(const LayerRestOptions& all_options, const LayerRestShape& all,
        const LayerRestTensors& t, const LayerRestGradients& g, int64_t row)
      : options(all_options), shape(all), tensors(t), gradients(g) {
    shape.rows = LayerRestBlockRows(all.rows - row);
    for (DropoutOptions* dropout :
         {&options.mixed_dropout, &options.hidden_dropout,
          &options.branch_dropout}) {
      dropout->first_row += row;
    }
    const auto on = [row](auto*& rows, int64_t width) {
      if (rows != nullptr) rows += row * width;
    };
    on(tensors.mixed, all.mixed);
    on(tensors.s, all.width);
    on(tensors.kept, all.hidden);
    on(tensors.mean, 1);
    on(tensors.inverse, 1);
    on(tensors.end_s, all.width);
    on(tensors.end_mean, 1);
    on(tensors.end_inverse, 1);
    on(gradients.grad_y, all.width);
    on(gradients.grad_x, all.width);
    on(gradients.grad_mixed, all.mixed);
  }
};

void CheckPlaces(const LayerRestOptions& options, const LayerRestShape& shape,
                 const LayerRestWeights& w, const LayerRestGradients& g) {
  const bool post = w.end_gamma != nullptr, empty = shape.rows == 0;
  const bool drops = options.branch_dropout.probability > 0;
  const struct {
    const char* name;
    const void* data;
    bool wanted;
  } places[] = {
      {"grad_y", g.grad_y, !empty},
      {"grad_x", g.grad_x, !empty},
      {"grad_mixed", g.grad_mixed, !empty},
      {"grad_out_weight", g.grad_out_weight, true},
      {"grad_weight1", g.grad_weight1, true},
      {"grad_weight2", g.grad_weight2, true},
      {"hidden", g.hidden, !empty && options.activation == Nonlinearity::kGelu},
      {"grad_hidden", g.grad_hidden, !empty},
      {"grad_branch", g.grad_branch, !empty && (post || drops)},
      {"grad_base", g.grad_base, !empty && post && drops},
      {"grad_out", g.grad_out,
       !empty && options.mixed_dropout.probability > 0}};
  for (const auto& place : places) {
    if (place.data != nullptr || !place.wanted) continue;
    throw ArgumentError(StrCat("layer_rest: ", place.name), "data",
                        "a null pointer");
  }
}

}  // namespace

int64_t LayerRestGradientWorkspaceFloats(const LayerRestShape& shape,
                                         const Executor& executor) {
  const Sums sums = {shape.width, shape.hidden};
  int64_t tasks = 0;
  for (int64_t row = 0; row < shape.rows; row += kLayerRestBlockRows) {
    tasks += BlockTasks(shape, row).count();
  }
  return LayerRestProducts::Floats(shape) + GemmWorkspaceFloats(executor) +
         tasks * sums.floats();
}

void LayerRestBackward(const LayerRestOptions& options,
                       const LayerRestShape& shape,
                       const LayerRestWeights& weights,
                       const LayerRestTensors& tensors,
                       const LayerRestGradients& gradients, float* workspace,
                       Executor& executor) {
  LayerRestCheck(options, shape, weights, tensors);
  CheckPlaces(options, shape, weights, gradients);
  const PackedOperands packed(
      LayerRestProducts::Backward(shape, weights).weights, 3, workspace,
      executor);
  const Sums parts = {shape.width, shape.hidden};
  float* scratch = workspace + LayerRestProducts::Floats(shape);
  float* sums = scratch + GemmWorkspaceFloats(executor);
  int64_t done = 0;  // tasks
  int64_t row = 0;
  do {
    const RowTasks tasks = BlockTasks(shape, row);
    const Block block(options, shape, tensors, gradients, row);
    const Backward backward(block.options, block.shape, weights, block.tensors,
                            block.gradients, packed);
    executor.ParallelFor(tasks.count(), [&](int64_t task, int worker) {
      backward.Run(tasks.begin(task), tasks.end(task),
                   sums + (done + task) * parts.floats(),
                   scratch + worker * kGemmRowsWorkspaceFloats);
    });
    done += tasks.count();
    backward.Weights(/*add=*/row > 0, scratch, executor);
    row += kLayerRestBlockRows;
    if (row >= shape.rows) backward.AddUp(done, sums);
  } while (row < shape.rows);
}

}  // namespace tarn
