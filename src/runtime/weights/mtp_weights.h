// The weights of the extra prediction head (MtpConfig).
#pragma once

#include "config/model_config.h"
#include "runtime/weights/model_tensors.h"
#include "runtime/weights/weights.h"
#include "weights/weight_source.h"

namespace tarn {

struct MtpWeights {
  NormWeights embedding_norm, hidden_norm;
  WeightMatrix projection;  // [d_model, 2 d_model], of [embedding; hidden]
  /// The head's layer and final norm; the embedding and the matrix of logits
  /// are the model's (ShareEnds).
  Weights stack;

  /// Uses the model's matrices, without a copy. config: of either.
  void ShareEnds(const Weights& model, const ModelConfig& config);
};

/// Whether a source has any tensor of a head.
bool HasMtp(const WeightSource& source);

/// All but what ShareEnds gives. config: the model's, of which MtpConfig is not
/// empty.
MtpWeights MakeMtpWeights(ModelTensors& tensors, const ModelConfig& config);

}  // namespace tarn
