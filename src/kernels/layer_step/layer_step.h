// One token of each sequence through a stack of transformer layers, as an RNN
// (Katharopoulos et al. 2020, eq. (16)-(20)), in one region of a team: the
// dozen passes of a layer follow each other within microseconds, and a share
// keeps its part of every weight, which stays in that core's cache from token
// to token.
//
// Sublayers, attentions first, then the feed-forward network:
//   pre-norm:   x <- x + F(norm(x))
//   post-norm:  x <- norm(x + F(x))
//   attention:     F(y) = W_o Attend(W_q y + b_q, ...) + b_o
//   feed-forward:  F(y) = W_2 act(W_1 y + b_1) + b_2, or
//                  F(y) = W_2 (silu(W_1 y + b_1) * W_3 y) + b_2
#pragma once

#include <cstdint>

#include "core/norm_kind.h"
#include "core/threads/team.h"
#include "kernels/bias_activation/bias_activation.h"

namespace tarn {

/// Self attention, and cross attention if there is one.
constexpr int64_t kMostStepAttentions = 2;

/// Dense, as trained: weight [outputs, inputs]; no bias: zeros.
struct LayerStepMap {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

/// A norm, if there is a gamma; no beta: zeros.
struct LayerStepNorm {
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

struct LayerStepAttentionWeights {
  LayerStepMap query, key, value, out;  // no key, no value: not computed
  LayerStepNorm norm;                   // this sublayer's
};

struct LayerStepLayer {
  LayerStepAttentionWeights attention[kMostStepAttentions];
  LayerStepMap linear1, linear2;
  const float* linear3 = nullptr;  // SwiGLU if not null
  LayerStepNorm norm;              // the feed-forward network's
};

/// Rows that an attention reads and writes, [rows, heads * width], dense.
struct LayerStepRows {
  float *queries = nullptr, *keys = nullptr, *values = nullptr;
  float* attended = nullptr;
};

/// What one share of an attention computes: these rows of these heads.
struct LayerStepPart {
  int64_t layer = 0, attention = 0;
  int64_t share = 0;  // of the team's width; concurrent parts differ
  int64_t row_begin = 0, row_end = 0, head_begin = 0, head_end = 0;
};

/// What an attention does between its maps. Attend is called from several
/// threads at once, for parts that have no row of a head in common.
class StepAttention {
 public:
  virtual ~StepAttention() = default;
  virtual void Attend(const LayerStepPart& part,
                      const LayerStepRows& rows) const = 0;
};

/// All layers have the same sizes.
struct LayerStepCall {
  int64_t rows = 0, width = 0;  // width: D
  int64_t heads = 1, d_key = 0, d_value = 0, hidden = 0;
  int64_t attentions = 1;  // of a layer
  bool pre_norm = false;
  NormKind norm_kind = NormKind::kLayer;
  double norm_eps = 1e-5;
  Nonlinearity activation = Nonlinearity::kRelu;
  const LayerStepLayer* layers = nullptr;
  int64_t count = 0;        // number of layers
  LayerStepNorm last_norm;  // after the last layer; no gamma: none
  LayerStepMap head;        // after that, to `outputs`; no weight: none
  int64_t outputs = 0;
  const float* x = nullptr;  // [rows, D]
  float* out = nullptr;      // [rows, D], with a head [rows, outputs]; not x
};

/// Floats of workspace for a team of `width`.
int64_t LayerStepWorkspaceFloats(const LayerStepCall& call, int width);

/// The bits are the same for any team. They are the same for a row alone or
/// among up to eight, and for a row among any greater number, where products
/// copy weights into panels and add in another order. workspace must be at a
/// multiple of 64 bytes. Allocates nothing; thread-safe alongside other teams.
/// Throws ShapeError for sizes below 0 and widths and heads below 1,
/// ArgumentError for null data.
void LayerSteps(const LayerStepCall& call, const StepAttention& attention,
                float* workspace, Team& team);

}  // namespace tarn
