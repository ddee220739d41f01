// Tokens sorted by expert, and products in which every group of rows has its
// own matrix (Gale et al. 2022, arXiv 2211.15841, section 3, without padding).
// Assignment a = t top_k + j is the j-th expert of token t; rows of
// a grouped product are assignments in the order of their experts, and of a
// within one expert.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/gemm/gemm.h"

namespace tarn {

/// The groups of one call, in memory of the caller.
struct ExpertGroups {
  int64_t experts = 0, assignments = 0;
  int64_t* offsets = nullptr;  // [experts + 1]: rows of e are [o_e, o_e+1)
  int64_t* order = nullptr;    // [assignments]: the assignment of a row
  int64_t* places = nullptr;   // [assignments]: the row of an assignment
};

/// Counts and sorts; chosen [assignments]. Throws ArgumentError for an index
/// outside 0 .. experts - 1, with nothing written to `order` and `places`.
/// O(experts + assignments); allocates nothing.
void GroupByExpert(const int64_t* chosen, const ExpertGroups& groups);

/// How the matrices of a grouped product meet rows x [assignments, depth] of
/// one operand; every matrix is dense, those of expert e begin at e rows
/// columns.
enum class GroupedForm {
  kRowsTimesTransposed,  // c[r, n] = sum_k a[r, k] b_e[n, k]
  kRows,                 // c[r, n] = sum_k a[r, k] b_e[k, n]
  kWeights,              // c_e[m, n] = sum over e's rows r of a[r, m] b[r, n]
};

struct GroupedProduct {
  GroupedForm form = GroupedForm::kRowsTimesTransposed;
  int64_t rows = 0;     // m of kWeights; unused by the others
  int64_t columns = 0;  // n
  int64_t depth = 0;    // k; unused by kWeights
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  bool add = false;  // c += instead
};

/// All groups in one parallel loop. A task takes some columns of one expert's
/// matrix for all its rows, so that a matrix is read once (once for 384 rows),
/// and that of an expert without rows not at all. An element has the bits of
/// Gemm, for any executor and whatever rows its group has. workspace:
/// GemmWorkspaceFloats at a multiple of 64 bytes. Arguments are not checked.
void GroupedGemm(const GroupedProduct& product, const ExpertGroups& groups,
                 float* workspace, Executor& executor);

}  // namespace tarn
