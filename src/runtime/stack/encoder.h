// Whole sequences through a stack that sees everything: the encoder of a
// sequence-to-sequence model, or a classifier. Each layer is finished for all
// rows before the next begins, because its attention needs them all. Memory is
// O(tokens d_model); a row's bits depend on its own sequence alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/stack/block.h"
#include "runtime/stack/cross.h"
#include "runtime/state/cross_memory.h"

namespace tarn {

/// Keeps its scratch from call to call if it is no larger than a short sequence
/// needs. One thread at a time.
class Encoder : private Block {
 public:
  /// cross: of a sequence-to-sequence model, else null.
  Encoder(const ModelConfig& config, const Weights& weights, const Cross* cross,
          Executor& executor);

  void Clear();
  /// Adds a sequence (0 tokens are allowed). Tokens in [0, vocab_size).
  void Add(std::span<const int32_t> tokens);
  using Block::rows;
  /// Runs all sequences added since Clear.
  void Run();
  /// After Run, applies the head [n_classes] to the mean row of sequence i,
  /// which must have tokens.
  void Classify(int64_t i, float* logits);
  /// After Run, fills `memory` with the keys and values of sequence i for all
  /// decoder layers. It must be made for the sequence's length.
  void FillMemory(int64_t i, CrossMemory& memory);

 private:
  void Prepare();

  const Weights& all_;
  const Cross* const cross_;
  std::vector<double> sums_;   // [d_model], of the mean
  AlignedBuffer<float> mean_;  // [d_model]
};

}  // namespace tarn
