#include "config/bounds.h"
#include "mixers/softmax/form.h"
#include "mixers/softmax/spec.h"

namespace tarn::mixers {

std::vector<OwnKey> SoftmaxKeys() {
  return {
      {.name = "attention_dropout",
       .help = "fraction of attention weights dropped; 0 without softmax "
               "layers",
       .type = RealKey{0.0, kBelowOne, 0.0},
       .after = "dropout",
       .strict = true,
       .training = true},
      {.name = "local_context",
       .help = "keys that a query of 'local' sees",
       .type = IntegerKey{0, kMaxPositions, 0},
       .after = "cross_attention"},
      {.name = "topk",
       .help = "keys kept by 'exact-topk' and the improved clustered mixers",
       .type = IntegerKey{1, kMaxCount, 32},
       .after = "cross_attention"},
      {.name = "length_limit",
       .help = "'conditional-full' is full up to this length, then linear",
       .type = IntegerKey{1, kMaxPositions, 512},
       .after = "cross_attention"}};
}

std::vector<OwnKey> GatedSoftmaxKeys() {
  std::vector<OwnKey> keys = {
      {.name = "rotary_width",
       .help =
           "channels that 'full', 'local' and 'gated-full' rotate; 0: d_key",
       .type = IntegerKey{0, kMaxWidth, 0}},
      {.name = "output_gate",
       .help = "sigmoid gates multiply the values of 'gated-full'",
       .type = FlagKey{true}},
      {.name = "query_key_norm",
       .help = "'gated-full' normalises queries and keys",
       .type = FlagKey{true}}};
  for (OwnKey& key : keys) key.section = "gated_softmax";
  constexpr double kMostScore = 1e6, kMostBase = 1e12;
  std::vector<OwnKey> form = {
      {.name = "window",
       .help =
           "last tokens that a token of 'full' or 'gated-full' reads; 0: all",
       .type = IntegerKey{0, kMaxPositions, 0}},
      {.name = "qkv_bias",
       .help =
           "biases of queries, keys, values and gates in 'full' and 'local'",
       .type = FlagKey{true}},
      {.name = "out_bias",
       .help = "bias of the output projection of 'full' and 'local'",
       .type = FlagKey{true}},
      {.name = "head_norm",
       .help = "root mean square norm of queries and keys in 'full' and "
               "'local': each head, or all heads together",
       .type = WordKey{{"none", "head", "full"}, 0}},
      {.name = "head_norm_eps",
       .help = "eps of the norms of queries, keys and latent rows of softmax "
               "attention; 0: norm_eps",
       .type = RealKey{0.0, 1.0, 0.0}},
      {.name = "head_gate",
       .help = "sigmoid gates multiply the values of 'full' and 'local'",
       .type = FlagKey{false}},
      {.name = "score_scale",
       .help = "factor of the scores of softmax attention; 0: 1 / sqrt(d_key)",
       .type = RealKey{0.0, kMostScore, 0.0},
       .key = "scale"},
      {.name = "softcap",
       .help = "soft cap c of the scores: c tanh(score / c); 0: none",
       .type = RealKey{0.0, kMostScore, 0.0}},
      {.name = "sinks",
       .help = "a learned score of each head joins the sum of its softmax",
       .type = FlagKey{false}},
      {.name = kRotateKey,
       .help = "rotary positions rotate the queries and keys of these layers",
       .type = FlagKey{true}},
      {.name = kRotaryBaseKey,
       .help = "base of the rotary frequencies of these layers, which are then "
               "not scaled; 0: the model's, with its scaling",
       .type = RealKey{0.0, kMostBase, 0.0}},
      {.name = "latent_width",
       .help = "width of the row from which 'full' makes keys and values; 0: "
               "none",
       .type = IntegerKey{0, kMaxWidth, 0}},
      {.name = "query_latent_width",
       .help = "width of the row from which latent attention makes queries; 0: "
               "none",
       .type = IntegerKey{0, kMaxWidth, 0}},
      {.name = "shared_key_width",
       .help = "channels of keys that the heads of latent attention share",
       .type = IntegerKey{0, kMaxWidth, 0}}};
  for (OwnKey& key : form) {
    key.section = "softmax_form";
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace tarn::mixers
