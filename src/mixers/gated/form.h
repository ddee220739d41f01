// What the mixers with a decaying state are made of, one row a mixer: RetNet,
// Lightning, Mamba-2, GLA, HGRN2, DeltaNet, Gated DeltaNet, KDA and linear
// attention with an output norm differ in which parts they have, not in how a
// part works. The spec, the runtime half, the torch half and Python each build
// a layer from its row, so that another mixer of this family is one more row. A
// layer computes, from rows x [D]:
//
//   q, k, v = W_q x, W_k x, W_v x           key_heads, key_heads, H heads
//   [q k v] = silu(convolution([q k v]))    or silu of some of them
//   q, k    = q / |q|, k / |k|              where `unit`
//   q, k    = phi(q), phi(k)                where `mapped`: form_features.h
//   g       = the decay of `gate`           a natural logarithm
//   o       = decay_attention or delta_attention of them
//   y       = norm(o) with the output gate, then W_out y
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/model_config.h"
#include "mixers/gated/form_features.h"

namespace tarn {

/// Where the logarithm g of the decay comes from.
enum class DecayGate {
  kNone,
  kConstant,    // log_decay [H], fixed
  kHead,        // -exp(A_log) softplus(W_g x + dt_bias), one a head
  kChannel,     // the same a channel of a key, W_g of low rank
  kLogSigmoid,  // log sigma(W_g x + b) / 16 a channel, W_g of low rank
  kBounded,     // f = l + (1 - l) sigma(W_g x), g = log f, and k = 1 - f;
                // l is fixed, or learned: kernels/decay_gate/depth_bounds.h
};
/// What multiplies the normalised output.
enum class OutputGate { kNone, kSilu, kSigmoid };
/// The part of the output that is normalised together: a value head, all value
/// heads, or those of a key head.
enum class NormSpan { kHead, kAll, kGroup };

struct GatedForm {
  const char* name;
  DecayGate gate = DecayGate::kNone;
  bool delta = false;        // delta_attention, with betas sigma(W_beta x)
  bool convolution = false;  // over q, k, v side by side, then silu
  bool convolution_bias = false;
  bool silu_queries = false;      // where there is no convolution
  bool silu_keys_values = false;  // the same
  bool unit = false;
  bool mapped = false;   // queries and keys
  bool grouped = false;  // key_heads may be fewer than n_heads
  bool scaled = true;    // queries by C^-1/2, C their entries after phi
  OutputGate output_gate = OutputGate::kNone;
  bool low_rank_output_gate = false;
  bool output_gate_bias = false;  // of the low-rank one's second map
  bool gate_first = false;        // norm(o act(z)), not norm(o) act(z)
  bool norm = true;               // else o act(z)
  NormSpan span = NormSpan::kHead;
  bool skip = false;  // v = dt x and o + D x, of Mamba-2
  bool rotary = false;

  bool constant() const { return gate == DecayGate::kConstant; }
  bool bounded() const { return gate == DecayGate::kBounded; }
  bool softplus() const {
    return gate == DecayGate::kHead || gate == DecayGate::kChannel;
  }
  /// Whether gates come from a projection of low rank, down and up again.
  bool low_rank() const {
    return gate == DecayGate::kChannel || gate == DecayGate::kLogSigmoid;
  }
  /// Whether each channel of a key has its own decay.
  bool channels() const { return low_rank() || bounded(); }
  /// Whether g depends on the token.
  bool projected() const { return gate > DecayGate::kConstant; }
};

/// Widths of one layer.
struct GatedSizes {
  int64_t d_model, heads, key_heads, d_key, d_value;
  int64_t keys, values;  // of all heads: key_heads * d_key, heads * d_value
  QkFeatures phi;        // of queries and keys
  int64_t d_feature;     // C: rows of a head's state, d_key without a map
  int64_t d_sum;     // its columns: d_value, one more where sums are divided
  int64_t gates;     // numbers of g a token: 0, heads or heads * d_key
  int64_t rank;      // of the gates' projections
  int64_t width;     // of the convolution; 0: none
  int64_t channels;  // of the convolution: 2 keys + values
  int64_t norm_groups, norm_width;  // heads * d_value = groups * width
  bool shared_norm;                 // one weight [norm_width] for all groups
  float scale;                      // of the queries
  bool in_bias, out_bias;           // of the maps of a row and of the last one
  double least_step, most_step;     // between which dt is kept; most 0: no end
  double norm_eps;                  // of the output norm
  // Bounds that the model learns (kBounded): whether the layer's own are a row
  // of a table for all `depth` layers, which the first such layer holds and the
  // others read.
  bool learns_bounds, reads_bounds;
  int64_t depth;
};

/// All rows, in the order of the registry.
std::span<const GatedForm> GatedForms();
/// The row of a mixer's name, or null.
const GatedForm* FindGatedForm(std::string_view name);
/// The row as the keys of one layer have it.
GatedForm FormOf(const GatedForm& row, const ModelConfig& layer);
/// form: of FormOf.
GatedSizes SizesOf(const GatedForm& form, const ModelConfig& layer);

/// The row as a JSON object, its words in lower case, for other languages.
std::string FormText(const GatedForm& form);

/// Divides the numbers of kLogSigmoid.
inline constexpr float kLogSigmoidDivisor = 16.0f;
/// Added to the squared length of a key under the root.
inline constexpr float kUnitEps = 1e-6f;

}  // namespace tarn
