#include "torch_nn/layers/embedding.h"

#include <cmath>

#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

// GPT-2's standard deviation for embeddings: tied logits start near 0.
constexpr double kSmallEmbedding = 0.02;

}  // namespace

void CheckTokens(const char* where, const torch::Tensor& tokens,
                 int64_t vocab_size) {
  const std::string name = StrCat(where, ": tokens");
  if (tokens.dim() != 2) {
    throw ShapeError(name, "[batch, seq_len]", ShapeText(tokens.sizes().vec()));
  }
  if (tokens.scalar_type() != torch::kInt64) {
    throw DTypeError(name, "int64", c10::toString(tokens.scalar_type()));
  }
  // On other devices the check would wait for the device at every step.
  if (!tokens.is_cpu() || tokens.numel() == 0) return;
  const auto [least, largest] = torch::aminmax(tokens);
  const int64_t low = least.item<int64_t>();
  const int64_t high = largest.item<int64_t>();
  if (low < 0 || high >= vocab_size) {
    throw ArgumentError(name, StrCat("ids in [0, ", vocab_size, ")"),
                        StrCat(low < 0 ? low : high));
  }
}

PositionEmbedding::PositionEmbedding(torch::nn::Module& owner,
                                     const ModelConfig& config,
                                     const std::string& prefix)
    : config_(config) {
  if (!config.HasAttention()) return;
  const std::string own = prefix == "value_" ? "" : prefix;
  if (config.positions == Positions::kLearned) {
    torch::NoGradGuard no_grad;  // for the in-place initialisation only
    learned_ = owner.register_module(
        own + "pos_embedding",
        torch::nn::Embedding(config.max_positions, config.d_model));
    learned_->weight.normal_(0.0, kSmallEmbedding);
  }
  if (config.input_norm) {
    norm_ = owner.register_module(own + "input_norm", MakeNorm(config));
  }
}

torch::Tensor PositionEmbedding::Sinusoids(const torch::Tensor& x,
                                           const torch::Tensor& places,
                                           int64_t width, int64_t first) {
  return places.defined() ? tables_->SinusoidalAt(places, width, x)
                          : tables_->Sinusoidal(x.size(1), width, x, first);
}

torch::Tensor PositionEmbedding::operator()(const char* where,
                                            const torch::Tensor& x,
                                            const torch::Tensor& places,
                                            int64_t first) {
  const torch::Tensor rows = Placed(where, x, places, first);
  return norm_ != nullptr ? norm_->forward(rows) : rows;
}

torch::Tensor PositionEmbedding::Placed(const char* where,
                                        const torch::Tensor& x,
                                        const torch::Tensor& places,
                                        int64_t first) {
  if (!config_.HasAttention()) return x;
  const int64_t seq_len = x.size(1);
  switch (config_.positions) {
    case Positions::kLearned: {
      return x + learned_(LearnedRows(where, seq_len, config_.max_positions, x,
                                      places, first));
    }
    case Positions::kSinusoidal: {
      if (config_.position_combine == PositionCombine::kAdd) {
        return x + Sinusoids(x, places, config_.d_model, first);
      }
      const int64_t width = config_.d_model - config_.EmbeddingWidth();
      return torch::cat({x, Sinusoids(x, places, width, first)
                                .expand({x.size(0), seq_len, width})},
                        -1);
    }
    case Positions::kNone:
    case Positions::kRotary:  // applied inside the attention layers
      break;
  }
  return x;
}

namespace {

torch::nn::Embedding MakeTokens(torch::nn::Module& owner,
                                const ModelConfig& config,
                                const std::string& prefix, bool shared) {
  torch::NoGradGuard no_grad;
  auto tokens = owner.register_module(
      prefix + "embedding",
      torch::nn::Embedding(config.vocab_size, config.EmbeddingWidth()));
  if (shared) tokens->weight.normal_(0.0, kSmallEmbedding);
  return tokens;
}

}  // namespace

TokenEmbedding::TokenEmbedding(torch::nn::Module& owner,
                               const ModelConfig& config,
                               const std::string& prefix, bool shared)
    : vocab_size_(config.vocab_size),
      factor_(config.embedding_factor),
      tokens_(MakeTokens(owner, config, prefix, shared)),
      positions_(owner, config, prefix) {}

torch::Tensor TokenEmbedding::operator()(const char* where,
                                         const torch::Tensor& tokens,
                                         const torch::Tensor& places,
                                         int64_t first) {
  CheckTokens(where, tokens, vocab_size_);
  const torch::Tensor rows = tokens_(tokens);
  return positions_(where, factor_ == 1.0 ? rows : rows * factor_, places,
                    first);
}

FrameEmbedding::FrameEmbedding(torch::nn::Module& owner,
                               const ModelConfig& config)
    : projection_(owner.register_module(
          "input_projection",
          torch::nn::Linear(config.input_dim, config.EmbeddingWidth()))),
      positions_(owner, config, "value_") {}

torch::Tensor FrameEmbedding::operator()(const char* where,
                                         const torch::Tensor& frames) {
  return positions_(where, projection_(frames), torch::Tensor());
}

Frames CheckFrames(const char* where, const torch::Tensor& frames,
                   const torch::Tensor& lengths, int64_t input_dim,
                   torch::ScalarType dtype) {
  const std::string name = StrCat(where, ": frames");
  if (!frames.defined()) {
    throw ArgumentError(name, StrCat("[batch, seq_len, ", input_dim, "]"),
                        "none");
  }
  if (frames.dim() != 3 || frames.size(2) != input_dim) {
    throw ShapeError(name, StrCat("[batch, seq_len, ", input_dim, "]"),
                     ShapeText(frames.sizes().vec()));
  }
  if (frames.scalar_type() != dtype) {
    throw DTypeError(name, c10::toString(dtype),
                     c10::toString(frames.scalar_type()));
  }
  const torch::Tensor mask = PrefixMask(where, lengths, frames);
  if (!mask.defined()) return {frames, mask};
  const torch::Tensor past = mask.logical_not().unsqueeze(-1);
  return {frames.masked_fill(past, 0.0), mask};
}

PredictorImpl::PredictorImpl(const ModelConfig& config)
    : factor_(config.logit_factor), softcap_(config.logit_softcap) {
  torch::NoGradGuard no_grad;
  // Both begin as those of torch::nn::Linear: U(+-1/sqrt(inputs)).
  const double bound = 1.0 / std::sqrt(static_cast<double>(config.d_model));
  if (!config.tied_head) {
    weight = register_parameter("weight",
                                torch::empty({config.Outputs(), config.d_model})
                                    .uniform_(-bound, bound));
  }
  if (config.head_bias) {
    bias = register_parameter(
        "bias", torch::empty({config.Outputs()}).uniform_(-bound, bound));
  }
}

torch::Tensor PredictorImpl::forward(const torch::Tensor& x,
                                     const torch::Tensor& embedding) {
  torch::Tensor logits =
      torch::linear(x, weight.defined() ? weight : embedding, bias);
  if (factor_ != 1.0) logits = logits * factor_;
  return softcap_ == 0 ? logits : torch::tanh(logits / softcap_) * softcap_;
}

}  // namespace tarn::nn
