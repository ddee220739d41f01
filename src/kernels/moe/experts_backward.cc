#include "core/error.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/passes.h"
#include "kernels/scratch.h"

namespace tarn {
namespace {

void WantGradientData(const char* name, const void* data, int64_t size) {
  if (data == nullptr && size > 0) {
    throw ArgumentError(StrCat("experts: ", name), "data", "a null pointer");
  }
}

}  // namespace

void ExpertsBackward(const ExpertsProblem& p, const ExpertsGradients& g,
                     float* workspace, int64_t* indices, Executor& executor) {
  CheckExperts(p);
  const int64_t rows = p.tokens * p.top_k;
  const int64_t matrix = p.experts * p.d_ff * p.d_model;
  const bool gated = p.weight3 != nullptr;
  WantGradientData("grad_y", g.grad_y, p.tokens * p.d_model);
  WantGradientData("product1", g.product1, rows * p.d_ff);
  WantGradientData("grad_weights", g.grad_weights, rows);
  WantGradientData("grad_weight1", g.grad_weight1, matrix);
  WantGradientData("grad_weight2", g.grad_weight2, matrix);
  if (gated) {
    WantGradientData("product3", g.product3, rows * p.d_ff);
    WantGradientData("grad_weight3", g.grad_weight3, matrix);
  }
  const ExpertGroups groups = GroupsIn(p, indices);
  GroupByExpert(p.chosen, groups);
  float* x = workspace + GemmWorkspaceFloats(executor);
  float* dy = x + PadRow(rows * p.d_model);
  float* hidden = dy + PadRow(rows * p.d_model);
  float* back = hidden + PadRow(rows * p.d_ff);
  float* grad_three = gated ? back + PadRow(rows * p.d_ff) : nullptr;
  GatherTokens(p, groups, p.x, x, executor);
  GatherTokens(p, groups, g.grad_y, dy, executor);

  const auto run = [&](GroupedForm form, int64_t m, int64_t n, int64_t k,
                       const float* a, const float* b, float* c, bool add) {
    GroupedGemm({form, m, n, k, a, b, c, add}, groups, workspace, executor);
  };
  constexpr GroupedForm kRows = GroupedForm::kRows;
  constexpr GroupedForm kWeights = GroupedForm::kWeights;
  const int64_t d_model = p.d_model, d_ff = p.d_ff;
  run(kRows, 0, d_ff, d_model, dy, p.weight2, back, false);
  ExpertHiddenBackward(p, groups,
                       {g.product1, gated ? g.product3 : nullptr, back, hidden,
                        grad_three, g.grad_weights},
                       executor);
  run(kWeights, d_model, d_ff, 0, dy, hidden, g.grad_weight2, false);
  run(kWeights, d_ff, d_model, 0, back, x, g.grad_weight1, false);
  if (gated) {
    run(kWeights, d_ff, d_model, 0, grad_three, x, g.grad_weight3, false);
  }
  if (g.grad_x == nullptr) return;
  run(kRows, 0, d_model, d_ff, back, p.weight1, dy, false);
  if (gated) run(kRows, 0, d_model, d_ff, grad_three, p.weight3, dy, true);
  CombineExperts(p, groups, nullptr, dy, g.grad_x, executor);
}

}  // namespace tarn
