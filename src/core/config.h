// One ModelConfig describes a model for the trainer and the runtime; the same
// words are the keys of config.json and the flags of `tarn train`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tarn {

enum class AttentionKind { kLinear, kFull };  // "linear", "full"
// "elu1", "identity", "relu", "relu2" act on single entries and live in the
// kernels; the rest have a width of their own and are computed before them.
enum class FeatureMap {
  kElu1,
  kIdentity,
  kRelu,
  kRelu2,          // max(x, 0)^2
  kPoly2,          // polynomial kernel of degree 2
  kFavor,          // positive random features, pairs exp(u), exp(-u)
  kFavorPositive,  // "favor-positive": exp(u) only
  kRff,            // random Fourier features
  kSmoothedRff,    // "smoothed-rff": rff and a constant feature
  kGrf             // generalised random features f(omega^T x)
};
enum class Denominator {
  kExact,
  kCompat,  // + eps
  kNone,
  kSigned  // kept away from 0 by size, for maps with negative features
};
enum class Positions { kNone, kSinusoidal, kLearned, kRotary };
enum class PositionCombine { kAdd, kConcat };  // "add", "concat"
enum class RotaryPlace { kBefore, kAfter };    // of the feature map
enum class Norm { kPost, kPre };               // "post", "pre"
enum class Activation { kRelu, kGelu };        // gelu is the exact form
enum class TokenizerKind { kByte, kChar, kBpe, kWorld };  // "byte", ...

/// A decoder-only language model: token embedding, positions, causal encoder
/// stack, optional final norm, head. Field = key of config.json = its default.
struct ModelConfig {
  int64_t vocab_size = 256;
  int64_t d_model = 128;
  int64_t n_layers = 4;
  int64_t n_heads = 4;
  int64_t d_key = 0;  // per head; 0 in memory before Finish(): d_model/n_heads
  int64_t d_value = 0;  // per head; likewise
  int64_t d_ff = 0;     // likewise: 4 * d_model
  AttentionKind attention = AttentionKind::kLinear;
  FeatureMap feature_map = FeatureMap::kElu1;
  Denominator denominator = Denominator::kExact;
  double eps = 1e-6;  // used by "compat" only
  Positions positions = Positions::kLearned;
  PositionCombine position_combine = PositionCombine::kAdd;
  int64_t max_positions = 1024;  // rows of the learned table
  RotaryPlace rotary_place = RotaryPlace::kBefore;
  double rotary_base = 10000.0;
  Norm norm = Norm::kPre;
  bool final_norm = true;
  double norm_eps = 1e-5;
  Activation activation = Activation::kGelu;
  double dropout = 0.0;            // training only
  double attention_dropout = 0.0;  // training only, "full" only
  bool tied_head = false;
  TokenizerKind tokenizer = TokenizerKind::kByte;

  bool operator==(const ModelConfig&) const = default;
  /// Width of the token embedding: d_model, or d_model / 2 when sinusoidal
  /// positions are concatenated.
  int64_t EmbeddingWidth() const;
};

/// Fills derived sizes, checks every range and combination (rotary needs an
/// even d_key, concat an even d_model and sinusoidal positions, a tied head
/// needs EmbeddingWidth() == d_model, ...). Bounds the totals as well: 2^40
/// parameters, 2^30 values of recurrent state. Throws ArgumentError naming the
/// key, with the config unchanged.
void FinishConfig(ModelConfig& config);

/// Strict JSON (see core/json.h) to config and back. Unknown, missing or
/// out-of-range keys are FormatError naming the key; `format_version` is 1.
/// Text written by ConfigToJson is stable, byte for byte, and holds the
/// derived sizes; it throws what FinishConfig throws.
Result<ModelConfig> ConfigFromJson(std::string_view json);
std::string ConfigToJson(const ModelConfig& config);

/// Sets one field from text ("--d-model 256" is SetConfigField(c, "d_model",
/// "256")); throws ArgumentError with the allowed values. No cross-checks.
void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value);
/// Every key of config.json but format_version, with one line of help, in file
/// order.
struct ConfigKey {
  const char* name;
  const char* help;
};
const std::vector<ConfigKey>& ConfigKeys();

const char* Name(AttentionKind);
const char* Name(FeatureMap);
/// Maps that act on single entries, so that the kernels compute them.
constexpr bool IsElementwise(FeatureMap map) {
  return map <= FeatureMap::kRelu2;
}
const char* Name(Denominator);
const char* Name(Positions);
const char* Name(PositionCombine);
const char* Name(RotaryPlace);
const char* Name(Norm);
const char* Name(Activation);
const char* Name(TokenizerKind);

/// Name and shape of every tensor the model's weight file holds, in model
/// order: `value_embedding.weight`, `pos_embedding.weight` (learned),
/// `layers.{i}.attention.{query,key,value,out}_projection.{weight,bias}`,
/// `layers.{i}.linear{1,2}.{weight,bias}`,
/// `layers.{i}.norm{1,2}.{weight,bias}`, `norm.{weight,bias}` (final_norm),
/// `predictor.weight` (untied), `predictor.bias`. Weights are [out, in] as in
/// PyTorch. Both functions throw what FinishConfig throws.
std::vector<std::pair<std::string, std::vector<int64_t>>> WeightShapes(
    const ModelConfig& config);
/// Elements of all those tensors together.
int64_t ParameterCount(const ModelConfig& config);

}  // namespace tarn
