// What all models have in common: a configuration, a batch in and logits out,
// and weight files. Parameters carry the names of WeightShapes() in
// config/model_config.h, so that files serve this side and the runtime.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "config/model_config.h"
#include "torch_nn/state/sequence_cut.h"
#include "torch_nn/state/stack_state.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// One batch. What a task does not use stays undefined.
struct Batch {
  torch::Tensor tokens;   // [B, T] int64 in [0, vocab_size)
  torch::Tensor lengths;  // [B] int64 in [0, T]; undefined: T. What is past
                          // them is padding and has no influence. On any
                          // device: on the CPU they are checked without waiting
  torch::Tensor frames;   // ctc, in place of tokens: [B, T, input_dim], dtype
                          // of the weights
  // seq2seq: what the decoder reads, and its lengths (undefined: U)
  torch::Tensor target_in;       // [B, U] int64
  torch::Tensor target_lengths;  // [B] int64 in [0, U]
  // lm, image: tokens are the piece here of a sequence that is cut over ranks;
  // no lengths then. Null: a whole sequence. Outlives the batch.
  const SequenceCut* cut = nullptr;
};

/// The batch with tokens, frames and targets on `device`. Lengths stay where
/// they are: this side reads them before the model runs.
Batch ToDevice(const Batch& batch, torch::Device device);

/// The base of every model. Not thread-safe while training; in eval mode under
/// NoGradGuard any number of threads may ask for logits.
class ModelImpl : public torch::nn::Module {
 public:
  /// The config is finished here, which checks it; throws ArgumentError.
  explicit ModelImpl(const ModelConfig& config);

  /// Logits by config().task, in the dtype of the weights:
  ///   lm        [B, T, vocab_size]; row t predicts token t + 1
  ///   classify  [B, n_classes]
  ///   seq2seq   [B, U, vocab_size]; row u predicts what follows target_in[u]
  ///   image     [B, T, 3 n_mixtures]; row t, the logits, means and log-scales
  ///             of a mixture of logistics, predicts byte t + 1
  ///   ctc       [B, T, n_classes]; row t labels frame t, class 0 is the blank
  /// B, T and U may be 0. Logits past a sequence's length are unspecified.
  /// Throws ShapeError, DTypeError or ArgumentError naming the field.
  virtual torch::Tensor Logits(const Batch& batch) = 0;

  /// Called by a trainer before update `step` (0, 1, ...): draws the random
  /// features of all layers again if their `redraw` says so, a function of
  /// (feature_seed, layer, step). Without it they stay as drawn for step 0 or
  /// read from a file; evaluation never draws.
  void RedrawFeatures(int64_t step);

  /// The state of no sequences: what every state of the model is like, without
  /// its memory. Throws ArgumentError for a model that has no such state.
  virtual StackState EmptyState() const;

  const ModelConfig& config() const { return config_; }

  /// Where the parameters are.
  torch::Device device() const;

 protected:
  ModelConfig config_;
};

/// A new model of the config's architecture, in training mode. Parameters are
/// drawn from torch's default generator. Throws ArgumentError naming the key.
std::shared_ptr<ModelImpl> MakeModel(const ModelConfig& config);

/// Writes every tensor of WeightShapes() as F32 (WriteSafetensors: by rename,
/// same bytes for the same weights). Throws IoError.
void SaveWeights(const ModelImpl& model, const std::string& path,
                 const std::map<std::string, std::string>& metadata = {});

/// Reads weights into the model, from a file or from a model directory (whose
/// shards, if it has some, have an index); every tensor of WeightShapes() must
/// be there with its shape and nothing else. F32, BF16 and F16 are widened.
/// Throws FormatError naming file and tensor, or IoError, with the model
/// untouched.
void LoadWeights(ModelImpl& model, const std::string& path);

}  // namespace tarn::nn
