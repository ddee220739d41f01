// The forward pass over one block of tokens, which may belong to several
// sequences, through a causal stack: a language model, or the decoder of a
// sequence-to-sequence model. A block's projections are matrix products over
// all its rows; the recurrence runs token by token, head by head; everything
// else runs row by row. Each of these gives a row the same bits in any block,
// hence so does the whole pass: for any split of a prompt, any batch and any
// thread count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/threads/team.h"
#include "runtime/stack/block.h"
#include "runtime/stack/cross.h"
#include "runtime/stack/pooled_rows.h"
#include "runtime/state/sequence_state.h"

namespace tarn {

/// Keeps its scratch from call to call: a block no larger than an earlier one
/// allocates nothing. One thread at a time.
class Forward : private Block {
 public:
  /// cross: of a sequence-to-sequence model, else null.
  Forward(const ModelConfig& config, const Weights& weights, const Cross* cross,
          Executor& executor);

  /// Starts a new block.
  void Clear();
  /// Appends tokens of one sequence (each sequence once per block) as far as
  /// the block has room; returns how many. Tokens must be in [0, vocab_size), a
  /// softmax state must have Reserve()d their positions, and a state of a
  /// sequence-to-sequence model must have its memory.
  int64_t Add(SequenceState& state, std::span<const int32_t> tokens);
  using Block::rows;
  bool full() const { return rows() == piece_rows_; }
  /// Asks for the logits of a row: vocab_size floats to `out`.
  void WantLogits(int64_t row, float* out);
  /// Asks that `count` rows from `row` on are added to `to`, after the final
  /// norm.
  void WantPooled(int64_t row, int64_t count, PooledRows* to);
  /// Asks for `count` rows from `row` on, after the final norm, as the head
  /// reads them: `out` [count, d_model].
  void WantHidden(int64_t row, int64_t count, float* out);
  /// Runs the block; states advance by the tokens added for them.
  void Run();
  /// The same with rows in place of the embedded tokens.
  void RunFrom(Rows x);

  /// The same in parts, for a model of which not all layers are there (a layer
  /// without a mixer is not): the embedded rows, and one layer over such rows,
  /// which replaces them. handed: [passed_width] what the first layer that
  /// hands rows on gives and the others read (MixerBlock::passed).
  void Embed(Rows x);
  void RunOnly(int64_t layer, Rows x, Rows handed);
  using Block::passed_width;

 private:
  void Prepare();
  void RunLayer(int64_t layer);
  void RunAll();
  void RunHead();
  void PoolRows();
  void CopyHidden();
  // forward_step.cc: a few rows, all layers in one region.
  struct StepPhase {
    enum class Work {
      kIn,
      kMixer,
      kOut,
      kCrossIn,
      kCross,
      kCrossOut,
      kFeedForward,
      kHead
    };
    Work work;
    int64_t layer = 0;
    int number = 0;  // among those of a mixer or a feed-forward part
    // The part whose result is added to a row before this phase, and the part
    // whose input the row becomes; null: none.
    const PartNorms* adds = nullptr;
    bool adds_out = false;  // the result is `out`, since no product follows
    const PartNorms* reads = nullptr;
  };
  class StepPlan;
  bool StepsAsTeam() const {
    // The team leaves the last layer's rows to its shares.
    return rows() <= kStepRows && !step_.empty() && pools_.empty();
  }
  void PlanStep();
  void RunStep();
  const WeightMatrix* StepMatrix(const StepPhase& phase) const;
  int64_t StepUnits(const StepPhase& phase) const;
  const void* NextOfStep(int64_t phase, int share) const;
  void RunPhase(int64_t phase, int share, int worker);
  void RunProduct(const StepPhase& phase, const Rows& y,
                  const StepShare& share);
  void CopyStepHidden(const Rows& x);
  void RunStepHead(const Rows& x, const Rows& y, StepShare share);
  void MakeStepRow(const StepPhase& phase, int64_t row, float* x,
                   float* y) const;
  void AddStepResult(const StepPhase& phase, int64_t row, float* x,
                     float* y) const;

  const Weights& all_;
  Team team_;
  std::vector<StepPhase> step_;  // empty: steps go layer by layer
  // For each share [x | y], kStepRows rows each: rows between the layers, and
  // the input of a part.
  AlignedBuffer<float> step_rows_;
  const Cross* const cross_;
  std::vector<int64_t> head_rows_;  // rows with logits
  std::vector<float*> head_out_;    // and where they go
  struct Pool {
    int64_t row, count;
    PooledRows* to;
  };
  std::vector<Pool> pools_;
  struct Hidden {
    int64_t row, count;
    float* to;
  };
  std::vector<Hidden> hidden_rows_;
};

}  // namespace tarn
