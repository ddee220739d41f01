// Maps tokens or frames to vectors and back: embeddings, positions, the head.
#pragma once

#include <memory>
#include <string>

#include "config/model_config.h"
#include "torch_nn/layers/norms.h"
#include "torch_nn/layers/positions.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// Adds positions to embedded tokens or frames and, with config.input_norm,
/// normalises the sum. It is no module itself: its table, if any, is the
/// owner's `pos_embedding`, or `{prefix}pos_embedding` for a prefix other than
/// "value_", N(0, 0.02^2); the norm is `input_norm` in the same way.
class PositionEmbedding {
 public:
  PositionEmbedding(torch::nn::Module& owner, const ModelConfig& config,
                    const std::string& prefix);
  /// x [B, T, EmbeddingWidth] -> [B, T, d_model]; places and errors as in
  /// TokenEmbedding.
  torch::Tensor operator()(const char* where, const torch::Tensor& x,
                           const torch::Tensor& places, int64_t first = 0);

 private:
  torch::Tensor Placed(const char* where, const torch::Tensor& x,
                       const torch::Tensor& places, int64_t first);
  torch::Tensor Sinusoids(const torch::Tensor& x, const torch::Tensor& places,
                          int64_t width, int64_t first);

  ModelConfig config_;
  torch::nn::Embedding learned_{nullptr};  // learned positions only
  std::shared_ptr<NormLayer> norm_;        // input_norm only
  std::shared_ptr<PositionTables> tables_ = std::make_shared<PositionTables>();
};

/// Token and position embedding. It is no module itself, since the keys of a
/// model file have no prefix for it: its tables belong to the model, as
/// `prefix` "value_" or "target_" names them.
class TokenEmbedding {
 public:
  /// Registers `{prefix}embedding` and, for learned positions,
  /// `pos_embedding` (of "value_") or `{prefix}pos_embedding` in `owner`.
  /// Token embedding N(0, 1), or N(0, 0.02^2) where `shared` with a tied head;
  /// learned positions N(0, 0.02^2).
  TokenEmbedding(torch::nn::Module& owner, const ModelConfig& config,
                 const std::string& prefix, bool shared);

  /// tokens [B, T] int64 -> [B, T, d_model]. `places` [B, T] int64 on the CPU:
  /// positions of the tokens; undefined: first, first + 1, ... Throws
  /// ShapeError, DTypeError, and ArgumentError for a token outside the
  /// vocabulary (checked on the CPU; on other devices torch's embedding
  /// asserts) or past the table of learned positions, all naming `where`.
  torch::Tensor operator()(const char* where, const torch::Tensor& tokens,
                           const torch::Tensor& places = {}, int64_t first = 0);
  /// [vocab, EmbeddingWidth].
  const torch::Tensor& weight() const { return tokens_->weight; }

 private:
  int64_t vocab_size_;
  double factor_;
  torch::nn::Embedding tokens_{nullptr};
  PositionEmbedding positions_;
};

/// Projects frames of numbers and adds positions. Like TokenEmbedding it is no
/// module: `input_projection` belongs to the model.
class FrameEmbedding {
 public:
  /// The projection is initialised as in torch::nn::Linear.
  FrameEmbedding(torch::nn::Module& owner, const ModelConfig& config);
  /// frames [B, T, input_dim] as CheckFrames leaves them -> [B, T, d_model].
  /// Throws ArgumentError naming `where` for more frames than learned
  /// positions.
  torch::Tensor operator()(const char* where, const torch::Tensor& frames);

 private:
  torch::nn::Linear projection_{nullptr};
  PositionEmbedding positions_;
};

/// The affine map to logits. Untied it owns `weight` [outputs, D], outputs =
/// config.Outputs(); tied it reads the weight of a token embedding. With
/// head_bias it owns `bias` [outputs].
class PredictorImpl : public torch::nn::Module {
 public:
  explicit PredictorImpl(const ModelConfig& config);
  /// x [..., D] -> logits [..., outputs]. `embedding` [vocab, D] is read by the
  /// tied form only.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& embedding);

  torch::Tensor weight;  // undefined when tied
  torch::Tensor bias;    // undefined without head_bias

 private:
  double factor_, softcap_;
};
TORCH_MODULE(Predictor);

/// Frames with zeros past the sequences' ends, so that what is there, NaN
/// included, touches neither results nor gradients. Throws ShapeError or
/// DTypeError ("where: frames") unless frames is [B, T, input_dim] of `dtype`,
/// and what PrefixMask throws.
struct Frames {
  torch::Tensor values;    // [B, T, input_dim]
  torch::Tensor key_mask;  // [B, T] bool; undefined: all count
};
Frames CheckFrames(const char* where, const torch::Tensor& frames,
                   const torch::Tensor& lengths, int64_t input_dim,
                   torch::ScalarType dtype);

/// Throws ShapeError, DTypeError or ArgumentError ("where: tokens") unless
/// tokens is [B, T] int64 with entries in [0, vocab_size).
void CheckTokens(const char* where, const torch::Tensor& tokens,
                 int64_t vocab_size);

}  // namespace tarn::nn
