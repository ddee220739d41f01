// What architectures of GGUF files have in common: sizes of a stack, heads,
// rotary positions, and the tensors of a decoder in Llama's form, in both
// directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "importers/gguf/architecture.h"

namespace tarn {

/// num_hidden_layers, hidden_size, max_position_embeddings, and
/// tie_word_embeddings where the file has no output.weight. Returns the number
/// of layers.
int64_t ReadGgufSizes(GgufKeys& from, PublishedKeys& to);
/// num_attention_heads, num_key_value_heads, head_dim, of which all layers have
/// as many.
void ReadGgufHeads(GgufKeys& from, PublishedKeys& to);
/// rms_norm_eps.
void ReadGgufNorm(GgufKeys& from, PublishedKeys& to);
/// The three, intermediate_size, and no experts. Returns the number of layers.
int64_t ReadGgufStack(GgufKeys& from, PublishedKeys& to);
/// rope_parameters of a model of which all head_dim channels of `to` rotate.
void ReadGgufRotary(GgufKeys& from, PublishedKeys& to);
/// Of rope_parameters all but rope_theta: the scaling, default, linear, yarn or
/// llama3, which is the one that rope_freqs.weight holds. width: channels that
/// rotate.
PublishedKeys GgufScaling(GgufKeys& from, double base, int64_t width);
/// When writing, rope_freqs.weight of a model with llama3's scaling.
void WriteGgufFactors(const ModelConfig& config, int64_t width,
                      GgufTensors& tensors);

/// What a decoder in Llama's form has besides its usual tensors.
struct GgufStackForm {
  bool permuted = false;     // rows of queries and keys
  bool head_norms = false;   // attn_q_norm, attn_k_norm
  bool norms_after = false;  // post_attention_norm, post_ffw_norm
  float norm_shift = 0;      // what the converter adds to weights of norms
};
void AddGgufStack(const ModelConfig& config, const GgufStackForm& form,
                  GgufTensors& tensors);
/// token_embd, output_norm and output; shift: as norm_shift.
void AddGgufEnds(const ModelConfig& config, float shift, GgufTensors& tensors);
/// The published weight of a norm.
void AddGgufNorm(const std::string& published, const std::string& name,
                 int64_t width, float shift, GgufTensors& tensors);

/// The way back: block_count, context_length, embedding_length, vocab_size,
/// of the published keys.
void AddGgufSizes(const GgufExport& from, const std::string& architecture,
                  GgufKeyList& to);
/// attention.head_count, head_count_kv, key_length, value_length.
void AddGgufHeads(const GgufExport& from, const std::string& architecture,
                  GgufKeyList& to);
/// Both, feed_forward_length and layer_norm_rms_epsilon.
void AddGgufStackKeys(const GgufExport& from, const std::string& architecture,
                      GgufKeyList& to);
/// rope.freq_base, dimension_count, scaling.*. width: channels that rotate.
/// factors: whether llama.cpp reads rope_freqs.weight of the architecture,
/// llama3's numbers (WriteGgufFactors); they are refused otherwise.
void AddGgufRotaryKeys(const GgufExport& from, const std::string& architecture,
                       int64_t width, GgufKeyList& to, bool factors = false);
/// context_length where a file does not say: what tarn's models can read.
inline constexpr int64_t kGgufContext = 131072;

}  // namespace tarn
