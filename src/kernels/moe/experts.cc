#include "kernels/moe/experts.h"

#include "core/error.h"
#include "kernels/moe/passes.h"
#include "kernels/scratch.h"

namespace tarn {
namespace {

int64_t Assignments(const ExpertsProblem& p) { return p.tokens * p.top_k; }

void WantExpertData(const char* name, const void* data, int64_t size) {
  if (data == nullptr && size > 0) {
    throw ArgumentError(StrCat("experts: ", name), "data", "a null pointer");
  }
}

}  // namespace

void CheckExperts(const ExpertsProblem& p) {
  if (p.tokens < 0 || p.top_k < 1 || p.experts < 1 || p.d_model < 0 ||
      p.d_ff < 0) {
    throw ShapeError(
        "experts: tokens, top_k, experts, d_model, d_ff",
        "sizes of at least 0, top_k and experts of at least 1",
        ShapeText({p.tokens, p.top_k, p.experts, p.d_model, p.d_ff}));
  }
  const int64_t matrix = p.experts * p.d_ff * p.d_model;
  WantExpertData("x", p.x, p.tokens * p.d_model);
  WantExpertData("chosen", p.chosen, Assignments(p));
  WantExpertData("weights", p.weights, Assignments(p));
  WantExpertData("weight1", p.weight1, matrix);
  WantExpertData("weight2", p.weight2, matrix);
}

ExpertGroups GroupsIn(const ExpertsProblem& p, int64_t* indices) {
  ExpertGroups groups;
  groups.experts = p.experts;
  groups.assignments = Assignments(p);
  groups.offsets = indices;
  groups.order = groups.offsets + p.experts + 1;
  groups.places = groups.order + groups.assignments;
  return groups;
}

int64_t ExpertsWorkspaceIndices(const ExpertsProblem& p) {
  return p.experts + 1 + 2 * Assignments(p);
}

// Forward: gathered rows, which the experts' results replace, and hidden rows.
// Gradient: rows of x and of dy, hidden rows, back and, with a gate,
// grad_three.
int64_t ExpertsWorkspaceFloats(const ExpertsProblem& p,
                               const Executor& executor, bool gradient) {
  const int64_t models = gradient ? 2 : 1;
  const int64_t hidden = !gradient ? 1 : p.weight3 == nullptr ? 2 : 3;
  return GemmWorkspaceFloats(executor) +
         models * PadRow(Assignments(p) * p.d_model) +
         hidden * PadRow(Assignments(p) * p.d_ff);
}

void ExpertsForward(const ExpertsProblem& p, float* y, float* product1,
                    float* product3, float* workspace, int64_t* indices,
                    Executor& executor) {
  CheckExperts(p);
  const int64_t rows = Assignments(p);
  WantExpertData("y", y, p.tokens * p.d_model);
  WantExpertData("product1", product1, rows * p.d_ff);
  const bool gated = p.weight3 != nullptr;
  if (gated) WantExpertData("product3", product3, rows * p.d_ff);
  const ExpertGroups groups = GroupsIn(p, indices);
  GroupByExpert(p.chosen, groups);
  float* gathered = workspace + GemmWorkspaceFloats(executor);
  float* hidden = gathered + PadRow(rows * p.d_model);
  GatherTokens(p, groups, p.x, gathered, executor);

  GroupedProduct up{GroupedForm::kRowsTimesTransposed,
                    0,
                    p.d_ff,
                    p.d_model,
                    gathered,
                    p.weight1,
                    product1};
  GroupedGemm(up, groups, workspace, executor);
  if (gated) {
    up.b = p.weight3;
    up.c = product3;
    GroupedGemm(up, groups, workspace, executor);
  }
  ExpertActivationRows(p.activation, rows, p.d_ff, product1,
                       gated ? product3 : nullptr, hidden, executor);
  const GroupedProduct down{GroupedForm::kRowsTimesTransposed,
                            0,
                            p.d_model,
                            p.d_ff,
                            hidden,
                            p.weight2,
                            gathered};
  GroupedGemm(down, groups, workspace, executor);
  CombineExperts(p, groups, p.weights, gathered, y, executor);
}

}  // namespace tarn
