// Softmax attention, of which 'full', 'local' and 'gated-full' are presets. A
// layer computes, from rows x [D]:
//   q, k, v, z = W_q x, W_k x, W_v x, W_z x    H, G, G, H heads; each + b where
//                                              qkv_bias
//   q, k = RMS(q), RMS(k)                      a head, or all heads together,
//                                              with head_norm_eps
//   q, k = their first rotary_width channels rotated, where positions are
//          rotary and the layer has `rotate`; by the model's frequencies, or
//          by those of own_rotary_base
//   s_hj = scale q_h . k_gj, c tanh(s / c) under a soft cap c, g = h / (H / G)
//   o_h = sum_j softmax_j(s_h) v_gj            over the last `window` tokens;
//                                              exp(t_h) joins the sum of the
//                                              softmax where there are sinks
//   out = W_out (o * sigma(z)) + b             z where there is a gate
// The latent variant (multi-head latent attention; DeepSeek-AI 2024, arXiv
// 2405.04434) makes keys and values of one row c [R] and adds a part of keys
// that all heads share, the only one to rotate:
//   c, k' = RMS(first R of W_c x), last S      of W_c x [R + S]
//   q = W_q x, or W_q RMS(W_d x)               H heads of [K - S | S] channels
//   k_h = [W_k,h c | k'],  v_h = W_v,h c
// It keeps [c | k'] of each token: a step takes W_k,h^T q_h for q_h, reads c as
// key and value, and multiplies by W_v,h last.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

inline constexpr const char* kGatedSoftmax = "gated-full";

/// The norm of queries and keys: the words of `head_norm`.
enum class HeadNorm { kNone, kHead, kFull };

inline constexpr const char* kRotateKey = "rotate";
inline constexpr const char* kRotaryBaseKey = "own_rotary_base";

/// One layer's sizes and parts.
struct SoftmaxForm {
  explicit SoftmaxForm(const ModelConfig& layer);

  int64_t queries() const { return heads * d_key; }
  int64_t keys() const { return key_heads * d_key; }
  int64_t values() const { return key_heads * d_value; }
  int64_t outputs() const { return heads * d_value; }
  int64_t group() const { return heads / key_heads; }
  /// Channels of a head's query or key besides the shared ones.
  int64_t own_key() const { return d_key - shared; }
  /// Where its angles begin in the runtime's rows of them.
  int64_t angles() const { return table * rotary; }
  /// Numbers of a token that the latent variant keeps.
  int64_t latent_row() const { return latent + shared; }
  /// Whether it is what 'full' was before it had keys: biases, every head of
  /// keys read by one of queries, all channels rotated, nothing else. `window`
  /// and `context` may be set.
  bool plain() const;

  int64_t d_model, heads, key_heads, d_key, d_value;
  bool qkv_bias = true, out_bias = true, gated = false, sinks = false;
  HeadNorm norm = HeadNorm::kNone;
  bool rotates = true;  // where positions are rotary
  int64_t rotary = 0;   // channels that rotate; 0: none
  int64_t table = 0;    // of angles: 0 the model's, then its rotary_bases
  int64_t window = 0;   // causal: the last tokens that are read; 0: all
  int64_t context = 0;  // of 'local' where it sees later tokens too
  double scale, softcap = 0;
  double norm_eps;  // of queries, keys and latent rows
  int64_t latent = 0, query_latent = 0, shared = 0;  // R, width of W_d x, S
};

}  // namespace tarn
