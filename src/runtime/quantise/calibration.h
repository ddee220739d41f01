// Rounding of a language model's layers to what a text makes of them: layer by
// layer, with the inputs that the rounded layers before it give
// (compensate.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/executor.h"
#include "runtime/quantise/rounded_source.h"
#include "runtime/stack/forward.h"
#include "runtime/weights/weights.h"
#include "weights/weight_source.h"

namespace tarn {

struct CalibrationText {
  std::vector<int32_t> tokens;  // in [0, vocab_size)
  int64_t sequence = 512;       // tokens that see one another
  double lambda = 0.01;         // of Compensation
};

/// One thread at a time; the executor and `tick` must outlive it. Memory: the
/// rows of all tokens between two layers, one layer in float32, and second
/// moments of inputs up to 1 GiB or for one matrix.
class Calibration {
 public:
  /// source: checked, of a model that the runtime runs; ends: what it is to
  /// have besides its layers, rounded. encodings: of the tensors that are
  /// rounded, all in groups. tick: called often; what it throws ends the work.
  /// Throws ArgumentError for a model that is no decoder and for no tokens.
  Calibration(std::shared_ptr<const WeightSource> source,
              std::shared_ptr<const WeightSource> ends,
              const ModelConfig& config, const TensorEncodings& encodings,
              CalibrationText text, Executor& executor,
              std::function<void()> tick);
  ~Calibration();

  /// The blocks of a layer's tensor; null for a tensor of no layer. Layers are
  /// computed in order, and those before the last that was asked for are gone:
  /// asking for one throws ArgumentError.
  const std::vector<uint8_t>* Blocks(const WeightTensor& tensor);

 private:
  class Watched;
  using Made = std::map<std::string, std::vector<uint8_t>>;

  void StartRows();
  void RoundLayer();
  // f(tokens of a piece, its first row, the state before it) for all pieces of
  // all sequences, with `forward` ready to run it.
  template <typename F>
  void ForPieces(Forward& forward, const F& f);
  void RoundMatrix(Watched& watched, size_t index);

  const std::shared_ptr<const WeightSource> source_, ends_;
  const ModelConfig config_;
  const TensorEncodings encodings_;
  const CalibrationText text_;
  Executor& executor_;
  const std::function<void()> tick_;

  Weights weights_;  // the ends, and the layer in use
  std::unique_ptr<SequenceState> state_;
  PassedVectors passed_vectors_;
  std::vector<float> x_, handed_, piece_;  // rows of all tokens; of one piece
  int64_t handed_width_ = 0;
  int64_t done_ = 0;  // layers
  Made made_;         // of layer done_ - 1
};

}  // namespace tarn
