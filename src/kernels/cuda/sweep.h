// One pass over the tokens of linear or decaying attention, forward or in
// reverse. With a_i, b_i, c_i rows of three tensors and S [c, b]:
//
//   S_i   = e^{g_i} S_{i-1} + W_i c_i b_i^T
//   out_i = R_i S_i a_i (+ X_i s_i, s_i = e^{g_i} s_{i-1} + Y_i c_i)
//
// in chunks of 64 tokens: inside a chunk P_ij = (R_i W_j a_i.b_j + X_i Y_j)
// e^{g_{j+1} + ... + g_i}. Every pass of both operators is one with its tensors
// in other roles:
//
//   output  a = q   b = k   c = v    forward
//   dq      a = dO  b = v   c = k    forward
//   dk      a = v   b = dO  c = q    reverse
//   dv      a = k   b = q   c = dO   reverse
//
// Blocks take a segment of time and a value head each. The state of a segment's
// first token comes from `Collect`, the same pass without outputs, and `Chain`,
// which runs along a sequence's segments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/feature_map.h"
#include "kernels/cuda/chunk_gates.h"
#include "kernels/cuda/sequences.h"
#include "kernels/cuda/stream.h"

namespace tarn::cuda {

/// A state in memory: S [N, HV, K, V], z [N, HV, K], or null.
struct StatePointers {
  float* S = nullptr;
  float* z = nullptr;
};

/// Which sums besides S a pass has.
enum class Sums {
  kNone,
  kDenominators,  // z over b; outputs are divided by a_i . z_i
  kRows           // s over c; X and Y
};

/// A pass over the segments of a call.
struct Sweep {
  Sequences sequences;
  int value_heads = 0;
  DeviceRows a, b, c, out;
  Side a_side, b_side;  // c has the side of b
  FeatureMap a_map = FeatureMap::kIdentity;
  FeatureMap b_map = FeatureMap::kIdentity;
  FeatureMap c_map = FeatureMap::kIdentity;
  bool reverse = false;
  bool c_is_value = false;  // S in memory is [K, V]: c are rows of values
  bool causal = true;       // if not, out_i = R_i S a_i of the initial S
  bool collect = false;     // no outputs: the state of each segment alone
  bool float_out = false;   // out is float32 and not T
  GateRows gates;
  // R and X (of_rows), or W and Y, [B, T, HV]; null: `factor`, and 0. The other
  // two are 1.
  const float* r = nullptr;
  const float* x = nullptr;
  float factor = 1.0f;
  bool of_rows = true;
  // out = scale S a / d. exact: d = a.z, out 0 where it is not positive;
  // compat: d = scale a.z + eps; none: d = 1.
  Denominator denominator = Denominator::kNone;
  float scale = 1.0f, eps = 0.0f;
  float* denominators = nullptr;  // [B, T, HV], written
  // Rows beside out's: out is multiplied by phi'(beside), or, for gates' sake,
  // dots [B, T, HV] are those of beside with out's part of the state before the
  // chunk.
  DeviceRows beside;
  FeatureMap beside_map = FeatureMap::kIdentity;
  float* dots = nullptr;
  StatePointers initial, final;
  float* checkpoints = nullptr;   // states before every 256th token, written
  const float* starts = nullptr;  // those of a call before: no slots are read
  // Workspace: states of slots [slots, HV, K, V] and [slots, HV, K], and decay
  // of a segment [slots, HV]. A collecting pass writes states from zero, others
  // read those of their first tokens.
  StatePointers slots;
  float* slot_decay = nullptr;
};

/// Passes side by side, of one type and of the same sequences and heads.
struct Sweeps {
  Sweep at[3];
  int count = 0;
};

/// Widths that Run serves.
inline constexpr int64_t kMostSweepWidth = 128;

/// Tokens of a segment are such that a call has about so many blocks.
inline constexpr int kSweepBlocksPerMultiprocessor = 2;

/// Runs the passes in one launch; all have the same sums. width: the most of
/// all rows.
void Run(const Sweeps& sweeps, Sums sums, DType dtype, int64_t width,
         CudaStream stream);

/// Turns states of slots from zero (of `sweep`, which collected them) into
/// those before the slots; without causality, makes `final` of them, the state
/// after all, which such passes take as the initial one.
void Chain(const Sweep& sweep, int64_t d_key, int64_t d_value,
           CudaStream stream);

/// out [B, T, H, K] from parts [B, T, HV, K]: the sum over each head's value
/// heads in their order, times phi'(x), x as out.
void SumGroups(const float* parts, const TensorView& x, const TensorView& out,
               int64_t value_heads, FeatureMap map, CudaStream stream);

/// Floats of the slots' states and decays.
inline size_t SlotFloats(const Sequences& s, int64_t value_heads, int64_t d_key,
                         int64_t d_value) {
  return static_cast<size_t>(s.slots * value_heads *
                             (d_key * d_value + d_key + 1));
}
/// Puts them at `at`; returns what is after them.
inline float* PlaceSlots(Sweep& sweep, int64_t d_key, int64_t d_value,
                         float* at) {
  const int64_t states = sweep.sequences.slots * sweep.value_heads;
  sweep.slots.S = at;
  sweep.slots.z = at + states * d_key * d_value;
  sweep.slot_decay = sweep.slots.z + states * d_key;
  return sweep.slot_decay + states;
}

}  // namespace tarn::cuda
