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
  /// Runs the block; states advance by the tokens added for them.
  void Run();

 private:
  void Prepare();
  void RunLayer(int64_t layer);
  void RunHead();
  // forward_step.cc: a single row, all layers in one region.
  bool StepsAsTeam() const;
  void RunStep();
  const WeightMatrix* StepMatrix(int64_t phase) const;
  const void* NextOfStep(int64_t phase, int share) const;
  const float* StepResidual(int64_t sublayer, int worker);
  const float* StepInput(int64_t sublayer, int worker);
  const float* StepHeadInput(int worker);
  void StepPhase(int64_t phase, int share, int worker);
  void StepMix(int64_t layer, int share, int worker);

  const Weights& all_;
  Team team_;
  const Cross* const cross_;
  std::vector<int64_t> head_rows_;  // rows with logits
  std::vector<float*> head_out_;    // and where they go
};

}  // namespace tarn
