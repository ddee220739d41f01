#include "kernels/moe/groups.h"

#include <algorithm>

#include "kernels/moe/router.h"

namespace tarn {
namespace {

int64_t UpTo(int64_t n, int64_t d) { return (n + d - 1) / d; }

// The product of one expert, whose rows are [begin, end).
GemmProblem ProblemOf(const GroupedProduct& p, int64_t expert, int64_t begin,
                      int64_t end) {
  GemmProblem g;
  g.columns = p.columns;
  g.add = p.add;
  g.c_stride = p.columns;
  if (p.form == GroupedForm::kWeights) {
    g.rows = p.rows;
    g.depth = end - begin;
    g.a = {p.a + begin * p.rows, p.rows, true};
    g.b = {p.b + begin * p.columns, p.columns, false};
    g.c = p.c + expert * p.rows * p.columns;
    return g;
  }
  g.rows = end - begin;
  g.depth = p.depth;
  g.a = {p.a + begin * p.depth, p.depth, false};
  const float* matrix = p.b + expert * p.columns * p.depth;
  const bool transposed = p.form == GroupedForm::kRowsTimesTransposed;
  g.b = {matrix, transposed ? p.depth : p.columns, transposed};
  g.c = p.c + begin * p.columns;
  return g;
}

}  // namespace

void GroupByExpert(const int64_t* chosen, const ExpertGroups& groups) {
  CheckChosen("experts: chosen", chosen, groups.assignments, groups.experts);
  int64_t* ends = groups.offsets + 1;
  std::fill(groups.offsets, ends + groups.experts, 0);
  for (int64_t a = 0; a < groups.assignments; ++a) ++ends[chosen[a]];
  for (int64_t e = 0; e < groups.experts; ++e) ends[e] += groups.offsets[e];
  // offsets[e] moves through its group and ends where the next one begins, so
  // afterwards all of them are moved back by one expert.
  for (int64_t a = 0; a < groups.assignments; ++a) {
    const int64_t row = groups.offsets[chosen[a]]++;
    groups.order[row] = a;
    groups.places[a] = row;
  }
  std::copy_backward(groups.offsets, ends + groups.experts - 1,
                     ends + groups.experts);
  groups.offsets[0] = 0;
}

void GroupedGemm(const GroupedProduct& p, const ExpertGroups& groups,
                 float* workspace, Executor& executor) {
  const bool weights = p.form == GroupedForm::kWeights;
  if (p.columns == 0 || (weights && p.rows == 0)) return;
  int64_t most = weights ? p.rows : 0, needed = 0;
  for (int64_t e = 0; e < groups.experts; ++e) {
    const int64_t rows = groups.offsets[e + 1] - groups.offsets[e];
    if (!weights) most = std::max(most, rows);
    needed += weights || rows > 0;
  }
  // About four tasks a worker: columns are cut first, then long groups.
  constexpr int64_t kLeastRows = 48;
  const int64_t wanted = 4 * executor.width();
  const int64_t panels = UpTo(p.columns, kGemmColumns);
  const int64_t by_expert = UpTo(wanted, std::max<int64_t>(needed, 1));
  const int64_t columns = std::min(panels, by_expert);
  const int64_t rows = std::max<int64_t>(
      1, std::min(UpTo(by_expert, columns), UpTo(most, kLeastRows)));
  executor.ParallelFor(groups.experts * columns * rows, [&](int64_t task,
                                                            int worker) {
    const int64_t expert = task / (columns * rows);
    const int64_t column = task / rows % columns, row = task % rows;
    const GemmProblem g = ProblemOf(p, expert, groups.offsets[expert],
                                    groups.offsets[expert + 1]);
    const auto edge = [&](int64_t i) {
      return std::min(g.columns, i * panels / columns * kGemmColumns);
    };
    GemmPart(g, g.rows * row / rows, g.rows * (row + 1) / rows, edge(column),
             edge(column + 1), workspace + worker * kGemmRowsWorkspaceFloats);
  });
}

}  // namespace tarn
