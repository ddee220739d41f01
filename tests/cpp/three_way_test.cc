// The promise of the project: the training forward pass, the runtime's prefill
// and the runtime's steps are one function. For every configuration that both
// sides support, 4 layers and 256 tokens, their logits agree to 1e-4. So do
// those of sequence-to-sequence models, of classifiers alone and in a batch,
// and the mixtures of image models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string_view>

#include "config/model_config.h"
#include "core/test_util.h"
#include "mixers/linear/form.h"
#include "mixers/rwkv/form.h"
#include "runtime/model/model.h"
#include "text/tokenizer.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn {
namespace {

constexpr int64_t kSeqLen = 256;
constexpr double kTolerance = 1e-4;  // absolute, on float32 logits

// What decides the arithmetic of attention and positions: the full product.
std::vector<ModelConfig> AttentionConfigs() {
  struct Place {
    Positions positions;
    PositionCombine combine;
    RotaryPlace rotary;
  };
  using enum PositionCombine;
  using enum RotaryPlace;
  const Place places[] = {{Positions::kNone, kAdd, kBefore},
                          {Positions::kSinusoidal, kAdd, kBefore},
                          {Positions::kSinusoidal, kConcat, kBefore},
                          {Positions::kLearned, kAdd, kBefore},
                          {Positions::kRotary, kAdd, kBefore},
                          {Positions::kRotary, kAdd, kAfter}};
  std::vector<ModelConfig> configs;
  for (const Place& place : places) {
    ModelConfig config;
    config.positions = place.positions;
    config.position_combine = place.combine;
    config.rotary_place = place.rotary;
    config.attention = MixerKind("full");
    configs.push_back(config);
    config.attention = MixerKind("linear");
    for (const FeatureMap map : {FeatureMap::kElu1, FeatureMap::kIdentity}) {
      for (const Denominator denominator :
           {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
        // Rotated before the identity map, products q.k take both signs and
        // denominators pass through 0, where float32 has no answer to agree on.
        const bool rotated_before =
            place.positions == Positions::kRotary && place.rotary == kBefore;
        if (map == FeatureMap::kIdentity && rotated_before &&
            denominator != Denominator::kNone) {
          continue;
        }
        SetKey(config, "feature_map", map);
        SetKey(config, "denominator", denominator);
        configs.push_back(config);
      }
    }
    // Sums of few features: with eps a row that is nearly empty would magnify
    // roundings by 1 / eps.
    for (const FeatureMap map : {FeatureMap::kRelu, FeatureMap::kRelu2}) {
      for (const Denominator denominator :
           {Denominator::kExact, Denominator::kNone}) {
        // Turned after the map, the numerator's products are others than the
        // denominator's, which may be 0 or nearly: there is no bound to hold.
        if (place.rotary == kAfter && denominator == Denominator::kExact) {
          continue;
        }
        SetKey(config, "feature_map", map);
        SetKey(config, "denominator", denominator);
        configs.push_back(config);
      }
    }
    if (place.rotary == kAfter) continue;  // for maps of single entries only
    for (const Denominator denominator :
         {Denominator::kExact, Denominator::kSigned}) {
      SetKey(config, "feature_map", FeatureMap::kPoly2);
      SetKey(config, "denominator", denominator);
      configs.push_back(config);
    }
  }
  return configs;
}

// The two-valued choices around it: norm, activation, tied, final_norm. Eight
// rows of an orthogonal array of strength 3: with the product above, every
// choice meets every pair of the others.
std::vector<ModelConfig> AllConfigs() {
  std::vector<ModelConfig> configs;
  for (ModelConfig config : AttentionConfigs()) {
    for (int row = 0; row < 8; ++row) {
      const bool a = row & 1, b = row & 2, c = row & 4;
      config.norm = a ? Norm::kPre : Norm::kPost;
      config.activation = b ? Activation::kGelu : Activation::kRelu;
      config.final_norm = c;
      config.tied_head = a ^ b ^ c;
      if (config.tied_head &&
          config.position_combine == PositionCombine::kConcat) {
        config.tied_head = false;  // the embedding is half as wide
      }
      config.d_model = 32;
      config.n_layers = 4;
      config.n_heads = 4;
      config.d_key = 8;
      config.d_value = 6;  // unlike d_key and d_model / n_heads
      config.d_ff = 72;
      SetKey(config, "eps", 0.01);  // large enough to be seen in compat
      config.max_positions = 256;
      FinishConfig(config);
      configs.push_back(config);
    }
  }
  return configs;
}

ModelConfig SmallConfig(Arch arch) {
  ModelConfig config;
  config.arch = arch;
  config.d_model = 32;
  config.n_layers = 2;
  config.n_heads = 4;
  config.d_key = 8;
  config.d_value = 6;
  config.d_ff = 72;
  config.max_positions = 256;
  if (arch == Arch::kEncoder) config.n_classes = 7;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
  return config;
}

// Images of 256 bytes: both kinds of attention, the paper's positions and
// learned ones, grey and colour.
std::vector<ModelConfig> ImageConfigs() {
  std::vector<ModelConfig> configs;
  for (int row = 0; row < 16; ++row) {
    ModelConfig config = SmallConfig(Arch::kDecoder);
    config.task = Task::kImage;
    const bool colour = row & 1, concat = row & 2;
    config.image_height = colour ? 17 : 16;
    config.image_width = colour ? 5 : 16;
    config.image_channels = colour ? 3 : 1;
    config.n_mixtures = colour ? 3 : 10;
    config.positions = concat ? Positions::kSinusoidal : Positions::kLearned;
    if (concat) config.position_combine = PositionCombine::kConcat;
    config.norm = row & 4 ? Norm::kPost : Norm::kPre;
    if (row & 8) config.attention = MixerKind("full");
    configs.push_back(config);
    FinishConfig(configs.back());
  }
  return configs;
}

// Kinds of attention (self and cross), maps, positions and norms, for models
// with an encoder.
std::vector<ModelConfig> EncoderConfigs(Arch arch) {
  std::vector<ModelConfig> configs;
  const auto add = [&](ModelConfig config) {
    for (const Positions positions :
         {Positions::kLearned, Positions::kSinusoidal, Positions::kRotary}) {
      for (const Norm norm : {Norm::kPre, Norm::kPost}) {
        config.positions = positions;
        config.norm = norm;
        config.tied_head =
            arch == Arch::kSeq2seq && positions == Positions::kLearned;
        configs.push_back(config);
        FinishConfig(configs.back());
      }
    }
  };
  for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
    for (const AttentionKind cross : {MixerKind("linear"), MixerKind("full")}) {
      ModelConfig config = SmallConfig(arch);
      config.attention = kind;
      if (arch == Arch::kSeq2seq) config.cross_attention = cross;
      if (arch == Arch::kEncoder && cross == MixerKind("full")) continue;
      if (!UsesFeatureMap(config)) {
        add(config);
        continue;
      }
      for (const FeatureMap map : {FeatureMap::kElu1, FeatureMap::kRelu,
                                   FeatureMap::kRelu2, FeatureMap::kPoly2}) {
        SetKey(config, "feature_map", map);
        SetKey(config, "denominator",
               map == FeatureMap::kPoly2 ? Denominator::kSigned
                                         : Denominator::kExact);
        add(config);
      }
    }
  }
  // Turned after the map, in both stacks.
  ModelConfig turned = SmallConfig(arch);
  turned.positions = Positions::kRotary;
  turned.rotary_place = RotaryPlace::kAfter;
  FinishConfig(turned);
  configs.push_back(turned);
  return configs;
}

// Stacks of mixed layers, both kinds of norm and of feed-forward part, in every
// architecture the runtime has.
std::vector<ModelConfig> HybridConfigs() {
  std::vector<ModelConfig> configs;
  const auto add = [&](Arch arch, const char* layers, Positions positions) {
    for (int row = 0; row < 4; ++row) {
      ModelConfig config = SmallConfig(arch);
      config.n_layers = 4;
      config.layers = LayersFromText(layers);
      config.positions = positions;
      config.norm_kind = row & 1 ? NormKind::kRms : NormKind::kLayer;
      config.feed_forward =
          row & 2 ? FeedForwardOf("swiglu") : FeedForwardOf("mlp");
      config.norm = row == 1 ? Norm::kPost : Norm::kPre;
      configs.push_back(config);
      FinishConfig(configs.back());
    }
  };
  for (const Arch arch : {Arch::kDecoder, Arch::kEncoder, Arch::kSeq2seq}) {
    for (const Positions positions :
         {Positions::kLearned, Positions::kRotary}) {
      add(arch, "linear,full", positions);
      add(arch, "linear:feature_map=relu,linear,full", positions);
      add(arch, "full,linear:feature_map=poly2:denominator=signed", positions);
    }
  }
  return configs;
}

// Mixers with a decaying state, by themselves and with others, heads of keys
// shared or not, widths and ranks of their own.
std::vector<ModelConfig> GatedConfigs() {
  std::vector<ModelConfig> configs;
  const auto add = [&](const char* layers, Positions positions) {
    for (int row = 0; row < 4; ++row) {
      ModelConfig config = SmallConfig(Arch::kDecoder);
      config.n_layers = 4;
      config.layers = LayersFromText(layers);
      for (const LayerConfig& layer : config.layers) {
        if (IsRwkv(Name(layer.attention))) config.d_value = config.d_key;
      }
      config.positions = positions;
      config.norm_kind = row & 1 ? NormKind::kRms : NormKind::kLayer;
      config.feed_forward =
          row & 2 ? FeedForwardOf("swiglu") : FeedForwardOf("mlp");
      config.norm = row == 1 ? Norm::kPost : Norm::kPre;
      configs.push_back(config);
      FinishConfig(configs.back());
    }
  };
  for (const char* layers : {"retnet",
                             "lightning",
                             "mamba2",
                             "gla",
                             "hgrn2",
                             "deltanet",
                             "gdn",
                             "kda",
                             "mamba2:key_heads=2:conv_width=0",
                             "mamba2:mamba2_norm=false:least_step=0.3",
                             "mamba2:mamba2_norm_first=true:key_heads=2:least_"
                             "step=0.2:most_step=0.6",
                             "gla:gate_rank=3",
                             "deltanet:key_heads=1:negative_eigenvalues=true",
                             "deltanet:conv_width=0",
                             "gdn:key_heads=2:conv_width=8",
                             "kda:key_heads=2:conv_width=2:gate_rank=5",
                             "gla:gate_activation=none,kda:gate_bias=true",
                             "gdn:gate_activation=sigmoid:output_norm_eps=0.1",
                             "deltanet:gate_activation=silu",
                             "norm-linear,norm-linear:qk_map=hadamard,full",
                             "norm-linear:qk_map=identity,norm-linear:qk_map="
                             "relu:divided_sums=true",
                             "norm-linear:qk_map=t2r:unit_queries=true,norm-"
                             "linear:qk_map=hedgehog:divided_sums=true",
                             "norm-linear:qk_map=dpfp:unit_keys=true:output_"
                             "norm_eps=0.1:gate_activation=silu",
                             "mamba2,mamba2,full",
                             "kda,full",
                             "gla,linear",
                             "mamba1",
                             "mamba1:gate_rank=3:conv_width=0",
                             "short-conv",
                             "short-conv:conv_width=8:conv_bias=true,full",
                             "rg-lru",
                             "rg-lru:conv_width=0,short-conv:conv_width=2",
                             "mlstm",
                             "mlstm:gate_softcap=0.0,full",
                             "mamba1:selection_norm=true",
                             "mamba1:selection_norm=true:selection_norm_eps=0."
                             "3,full",
                             "mamba1:conv_width=8,mamba2,full"}) {
    add(layers, Positions::kNone);
  }
  for (const char* layers :
       {"retnet", "gdn,gdn,gdn,full", "retnet,linear", "mamba2,full"}) {
    add(layers, Positions::kRotary);
  }
  add("gdn,gdn,gdn,full", Positions::kLearned);
  for (const char* layers :
       {"gated-full", "gated-full:output_gate=false:key_heads=2",
        "gated-full:query_key_norm=false", "gdn,gdn,gdn,gated-full:key_heads=2",
        "mamba2,gated-full:key_heads=1", "kda,rwkv6:gate_rank=4,gated-full",
        "local:local_context=1", "local:local_context=4,linear",
        "full,local:local_context=7,linear"}) {
    add(layers, Positions::kNone);
    add(layers, Positions::kRotary);
  }
  for (const char* layers :
       {"rwkv6", "rwkv7", "rwkv7:gate_rank=3,rwkv6:gate_rank=5,full",
        "rwkv7:rate_rank=3:output_gate_rank=5:unit_eps=0.1,"
        "rwkv6:shift_rank=3:output_norm_eps=0.1"}) {
    add(layers, Positions::kNone);
  }
  // Other feed-forward parts, none among them: one for all layers, or by layer.
  const size_t parts = configs.size();
  for (const char* layers :
       {"mamba2:feed_forward=none", "mamba1:feed_forward=none",
        "linear:feed_forward=none,full",
        "gdn:feed_forward=none,gdn,gated-full:feed_forward=relu2",
        "linear:feed_forward=geglu,full:feed_forward=swiglu",
        "rwkv6:feed_forward=gated-channel-mix,full",
        "rwkv7:feed_forward=channel-mix,full:feed_forward=relu2,linear"}) {
    add(layers, Positions::kNone);
  }
  for (size_t i = parts; i < configs.size(); i += 2) {
    configs[i].norm = Norm::kPost;
  }
  // Each of them once more with rows of the feed-forward part in the state.
  for (const char* layers :
       {"linear", "full", "rwkv6", "rwkv7",
        "gdn,gdn,gdn,gated-full:key_heads=2", "linear,full"}) {
    const size_t first = configs.size();
    add(layers, Positions::kNone);
    configs.resize(first + 2);  // the others differ in this part alone
    for (size_t i = first; i < configs.size(); ++i) {
      configs[i].feed_forward = FeedForwardOf("channel-mix");
      FinishConfig(configs[i]);
    }
  }
  return configs;
}

// The forms of softmax attention that published models have: grouped heads,
// biases, norms, gates, windows, caps, sinks, scaled rotation, latent rows.
std::vector<ModelConfig> SoftmaxConfigs() {
  std::vector<ModelConfig> configs;
  const auto add = [&](const char* layers, Positions positions,
                       RotaryScalingKind scaling = RotaryScalingKind::kNone) {
    for (int row = 0; row < 2; ++row) {
      ModelConfig config = SmallConfig(Arch::kDecoder);
      config.n_layers = 3;
      config.layers = LayersFromText(layers);
      config.positions = positions;
      config.norm_kind = row == 0 ? NormKind::kRms : NormKind::kLayer;
      config.feed_forward =
          row == 0 ? FeedForwardOf("swiglu") : FeedForwardOf("mlp");
      config.rotary_scaling = scaling;
      config.rotary_factor = 4;
      config.rotary_original_positions = 64;
      if (scaling == RotaryScalingKind::kProportional) config.rotary_low = 0.5;
      configs.push_back(config);
      FinishConfig(configs.back());
    }
  };
  for (const Positions positions : {Positions::kNone, Positions::kRotary}) {
    for (const char* layers :
         {"full:key_heads=2", "full:key_heads=1:out_bias=false",
          "full:key_heads=2:qkv_bias=false:out_bias=false:head_norm=head",
          "full:head_norm=full:key_heads=2:head_norm_eps=0.5",
          "full:head_gate=true:head_norm=head", "full:window=1",
          "full:window=40:key_heads=2", "full:softcap=1.5:score_scale=0.7",
          "full:sinks=true:softcap=0.5",
          "full:window=9:sinks=true:head_norm=full:key_heads=2",
          "local:local_context=8:key_heads=2:sinks=true",
          "gated-full:window=17:softcap=2.0:sinks=true",
          "full:window=8,full,linear"}) {
      add(layers, positions);
    }
  }
  add("full:key_heads=2:rotary_width=4", Positions::kRotary);
  for (const char* layers :
       {"full:rotate=false,full", "local:local_context=8,full:rotate=false",
        "full:own_rotary_base=50", "full:rotate=false:head_norm=full,linear",
        "full:window=9:own_rotary_base=50,full:own_rotary_base=7,gated-full"}) {
    add(layers, Positions::kRotary);
    add(layers, Positions::kRotary, RotaryScalingKind::kYarn);
  }
  for (const RotaryScalingKind scaling :
       {RotaryScalingKind::kLinear, RotaryScalingKind::kLlama3,
        RotaryScalingKind::kYarn, RotaryScalingKind::kProportional}) {
    add("full:key_heads=2", Positions::kRotary, scaling);
    add("gated-full,linear", Positions::kRotary, scaling);
  }
  add("full:latent_width=12:qkv_bias=false", Positions::kNone);
  add("full:latent_width=9:shared_key_width=4:query_latent_width=10:"
      "qkv_bias=false:out_bias=false:head_norm_eps=0.5",
      Positions::kNone);
  for (const char* layers :
       {"full:latent_width=12:shared_key_width=4:rotary_width=4:qkv_bias=false",
        "full:latent_width=9:query_latent_width=10:shared_key_width=2:"
        "rotary_width=2:qkv_bias=false:sinks=true:softcap=2.0"}) {
    add(layers, Positions::kRotary);
  }
  return configs;
}

// Feed-forward parts with biases and without.
std::vector<ModelConfig> BiasConfigs() {
  std::vector<ModelConfig> configs;
  for (const char* part : {"mlp", "swiglu", "geglu", "relu2"}) {
    for (const FeedForwardBias bias :
         {FeedForwardBias::kAll, FeedForwardBias::kNone}) {
      for (const Arch arch : {Arch::kDecoder, Arch::kEncoder, Arch::kSeq2seq}) {
        ModelConfig config = SmallConfig(arch);
        config.feed_forward = FeedForwardOf(part);
        config.feed_forward_bias = bias;
        config.head_bias = bias == FeedForwardBias::kAll;
        config.norm = arch == Arch::kEncoder ? Norm::kAfter : Norm::kPre;
        configs.push_back(Finished(config));
      }
    }
  }
  return configs;
}

// Parallel mixers with different heads, a factor, and every kind
// of state; heads that differ by layer.
std::vector<ModelConfig> ParallelConfigs() {
  std::vector<ModelConfig> configs;
  const auto add = [&](const char* layers, Positions positions) {
    for (int row = 0; row < 4; ++row) {
      ModelConfig config = SmallConfig(Arch::kDecoder);
      config.n_layers = 4;
      config.layers = LayersFromText(layers);
      config.positions = positions;
      config.norm_kind = row & 1 ? NormKind::kRms : NormKind::kLayer;
      config.feed_forward =
          row & 2 ? FeedForwardOf("swiglu") : FeedForwardOf("channel-mix");
      config.norm = row == 1   ? Norm::kBoth
                    : row == 2 ? Norm::kPost
                               : Norm::kPre;
      configs.push_back(config);
      FinishConfig(configs.back());
    }
  };
  for (const Positions positions : {Positions::kNone, Positions::kRotary}) {
    for (const char* layers :
         {"mamba2+full", "mamba2+full:window=9,full",
          "mamba2:n_heads=6:d_value=5:d_key=16+full:n_heads=2:key_heads=1",
          "mamba1:branch_factor=0.5+full:branch_factor=-1.5:feed_forward=none",
          "full:window=5+local:local_context=7+gdn,mamba2+linear",
          "linear:n_heads=2,full:n_heads=8:d_value=3:d_ff=24"}) {
      add(layers, positions);
    }
  }
  for (const char* mixer : {"retnet", "mamba2", "gla", "hgrn2", "deltanet",
                            "gdn", "kda", "mamba1"}) {
    add((std::string(mixer) + ":recurrent_in_bias=true:recurrent_out_bias=true")
            .c_str(),
        std::string(mixer) == "retnet" ? Positions::kRotary : Positions::kNone);
  }
  add("hgrn2:learned_bounds=true", Positions::kNone);
  add("linear,hgrn2:learned_bounds=true+full,hgrn2:learned_bounds=true",
      Positions::kRotary);
  add("rwkv7:d_value=8:value_residual=true", Positions::kNone);
  add("linear,rwkv7:d_value=8:value_residual=true+full,"
      "rwkv7:d_value=8:value_residual=true",
      Positions::kNone);
  for (size_t i = configs.size() - 8; i < configs.size(); ++i) {
    configs[i].input_norm = true;
    FinishConfig(configs[i]);
  }
  add("rwkv7:d_value=8+gla:gate_rank=3,aft-simple:d_value=8+rwkv6:d_value=8",
      Positions::kLearned);
  return configs;
}

// Mixtures of experts: all layers or some, with and without a shared expert.
std::vector<ModelConfig> MixtureConfigs() {
  std::vector<ModelConfig> configs;
  for (const char* layers :
       {"linear:feed_forward=moe", "full:feed_forward=moe,gdn",
        "mamba2:feed_forward=none,gated-full:feed_forward=moe"}) {
    for (int row = 0; row < 4; ++row) {
      ModelConfig config = SmallConfig(Arch::kDecoder);
      config.n_layers = 4;
      config.layers = LayersFromText(layers);
      config.norm_kind = row & 1 ? NormKind::kRms : NormKind::kLayer;
      config.norm = row == 1 ? Norm::kPost : Norm::kPre;
      SetConfigField(config, "experts", "5");
      SetConfigField(config, "experts_per_token", row & 2 ? "3" : "2");
      SetConfigField(config, "d_expert", "24");
      SetConfigField(config, "expert_part", row & 1 ? "relu2" : "swiglu");
      if (row & 2) {
        SetConfigField(config, "router",
                       row & 1 ? "biased-sigmoid" : "sigmoid");
        SetConfigField(config, "router_scale", "1.5");
        SetConfigField(config, "d_shared", "40");
        SetConfigField(config, "shared_gate", row & 1 ? "true" : "false");
      }
      configs.push_back(config);
      FinishConfig(configs.back());
    }
  }
  return configs;
}

// Places of the norms, factors and offsets: layers with and without a part, and
// with a state of their own, in each architecture.
std::vector<ModelConfig> BlockConfigs(Arch arch) {
  std::vector<ModelConfig> configs;
  int row = 0;
  const std::vector<const char*> patterns =
      arch == Arch::kDecoder
          ? std::vector<const char*>{"full", "linear,gdn:feed_forward=none",
                                     "mamba2:feed_forward=channel-mix,full",
                                     "gdn:norm=none,full:norm=after"}
          : std::vector<const char*>{"full", "linear", "linear:norm=both,full"};
  for (const char* layers : patterns) {
    for (const Norm norm :
         {Norm::kPost, Norm::kPre, Norm::kAfter, Norm::kBoth, Norm::kNone}) {
      for (const bool factors : {false, true}) {
        ModelConfig config = SmallConfig(arch);
        config.layers = LayersFromText(layers);
        config.norm = norm;
        config.norm_kind = row & 1 ? NormKind::kLayer : NormKind::kRms;
        config.final_norm = norm == Norm::kNone || row % 3 != 0;
        config.tied_head = row % 4 == 0 && arch != Arch::kEncoder;
        config.positions =
            row & 2 ? Positions::kSinusoidal : Positions::kLearned;
        if (factors) {
          config.embedding_factor = 5.5;
          config.residual_factor = 0.4;
          config.logit_factor = 4;
          config.logit_softcap = 2;
          config.norm_offset = row % 3 == 0 ? 0.5 : 1.0;
        }
        config.activation =
            row % 3 == 0 ? Activation::kGeluTanh : Activation::kGelu;
        if (row % 5 == 2) config.feed_forward = FeedForwardOf("geglu-tanh");
        config.parallel_residual =
            row % 2 == 1 && norm != Norm::kPost && arch != Arch::kSeq2seq &&
            std::string_view(layers).find("channel-mix") ==
                std::string_view::npos;
        ++row;
        configs.push_back(config);
        FinishConfig(configs.back());
      }
    }
  }
  return configs;
}

std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.arch), " ", Name(c.cross_attention), " ", LayersText(c),
                " ", Name(c.norm_kind), " ", Name(c.feed_forward), " ",
                Name(KeyOf<FeatureMap>(c, "feature_map")), " ",
                Name(KeyOf<Denominator>(c, "denominator")), " ",
                Name(c.positions), " ", Name(c.position_combine), " ",
                Name(c.rotary_place), " ", Name(c.norm), " ",
                Name(c.activation), c.tied_head ? " tied" : "",
                c.final_norm ? " final_norm" : "");
}

// The configuration as the layer sees it that owns a weight.
ModelConfig ViewOf(const ModelConfig& config, const std::string& name) {
  const size_t at = name.find("layers.");
  if (at == name.npos) return config;
  return LayerView(config, std::stoll(name.substr(at + 7)));
}

// Every weight differs from its initial value, norms and biases included, so
// that one read in another's place shows in the logits.
std::shared_ptr<nn::ModelImpl> RandomModel(const ModelConfig& config,
                                           uint64_t seed) {
  torch::manual_seed(seed);
  const std::shared_ptr<nn::ModelImpl> model = nn::MakeModel(config);
  model->eval();
  torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& weight = item.value();
    weight.add_(torch::randn_like(weight), 0.1);
    const bool query_or_key = Contains(name, "query") || Contains(name, "key");
    const ModelConfig view = ViewOf(config, name);
    if (!UsesFeatureMap(view)) continue;
    // (1 + q.k)^2 must stay away from 0, and with it the first denominators.
    if (KeyOf<FeatureMap>(view, "feature_map") == FeatureMap::kPoly2 &&
        Contains(name, "query")) {
      weight.mul_(0.25);
    }
    if (KeyOf<Denominator>(view, "denominator") == Denominator::kNone) {
      // Sums over up to 256 tokens; values this small keep logits near 1.
      if (Contains(name, "value_projection")) weight.mul_(1e-3);
    } else if (KeyOf<FeatureMap>(view, "feature_map") ==
                   FeatureMap::kIdentity &&
               query_or_key) {
      // Positive queries and keys, as the map's use with a denominator asks:
      // a bias of 8 over a spread below 2.
      weight.mul_(Contains(name, "weight") ? 0.25 : 0.0);
      if (Contains(name, "bias")) weight.add_(8.0);
    }
  }
  for (auto& item : model->named_buffers()) {
    if (Contains(item.key(), "router_bias")) item.value().normal_(0, 0.3);
  }
  return model;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void SaveModel(const nn::ModelImpl& model, const std::string& dir) {
  WriteText(dir + "/config.json", ConfigToJson(model.config()));
  WriteText(dir + "/tokenizer.json", Tokenizer::Byte().ToJson());
  std::string labels;
  for (int64_t i = 0; i < model.config().n_classes; ++i) {
    labels += StrCat(i == 0 ? "[" : ",", "\"", i, "\"");
  }
  WriteText(dir + "/labels.json", labels + "]");
  nn::SaveWeights(model, dir + "/model.safetensors");
}

struct Differences {
  double prefill = 0, steps = 0;  // largest, from the training forward
  double spread = 0;              // standard deviation of the logits
};

double LargestDifference(const std::vector<float>& a, const float* b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    // A NaN on either side must not pass for agreement.
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(difference)) return INFINITY;
  }
  return largest;
}

std::vector<int32_t> IdsOf(const torch::Tensor& tokens) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens.size(1); ++t) {
    ids.push_back(static_cast<int32_t>(tokens[0][t].item<int64_t>()));
  }
  return ids;
}

// Scored at once and token by token, from states of one beginning.
Differences CompareDecoder(const Model& runtime, const State& start,
                           const std::vector<int32_t>& ids,
                           const torch::Tensor& expected) {
  const size_t row = static_cast<size_t>(runtime.n_outputs());
  std::vector<float> prefill(ids.size() * row), steps(ids.size() * row);
  State whole = start.Clone(), stepped = start.Clone();
  runtime.Score(whole, ids, prefill.data());
  for (size_t t = 0; t < ids.size(); ++t) {
    runtime.Step(stepped, ids[t], steps.data() + t * row);
  }
  const float* reference = expected.data_ptr<float>();
  return {LargestDifference(prefill, reference),
          LargestDifference(steps, reference), expected.std().item<double>()};
}

// Alone, and among others of other lengths.
Differences CompareClassifier(const Model& runtime,
                              const std::vector<int32_t>& ids,
                              const torch::Tensor& expected) {
  const size_t classes = runtime.labels().size();
  std::vector<float> alone(classes), batch(3 * classes);
  runtime.Classify(ids, alone.data());
  const std::span<const int32_t> all(ids);
  const std::span<const int32_t> sequences[] = {all.first(5), all,
                                                all.first(77)};
  runtime.ClassifyBatch(sequences, batch.data());
  const std::vector<float> among(batch.begin() + classes,
                                 batch.begin() + 2 * classes);
  const float* reference = expected.data_ptr<float>();
  return {LargestDifference(alone, reference),
          LargestDifference(among, reference), expected.std().item<double>()};
}

Differences Compare(nn::ModelImpl& model, const std::string& dir) {
  SaveModel(model, dir);
  torch::NoGradGuard no_grad;
  nn::Batch batch;
  batch.tokens = torch::randint(256, {1, kSeqLen}, torch::kInt64);
  const bool targets = model.config().arch == Arch::kSeq2seq;
  if (targets) batch.target_in = torch::randint(256, {1, 90}, torch::kInt64);
  const torch::Tensor expected = model.Logits(batch)[0].contiguous();
  const std::vector<int32_t> ids = IdsOf(batch.tokens);

  ModelOptions options;
  options.threads = 1;
  const Model runtime = Model::Open(dir, options).Take();
  if (model.config().arch == Arch::kEncoder) {
    return CompareClassifier(runtime, ids, expected);
  }
  if (!targets) return CompareDecoder(runtime, State(runtime), ids, expected);
  return CompareDecoder(runtime, runtime.Encode(ids), IdsOf(batch.target_in),
                        expected);
}

// Every configuration of a list, and a line about the largest differences.
void CompareAll(const std::vector<ModelConfig>& configs, const char* what,
                double tolerance = kTolerance) {
  torch::set_num_threads(1);  // tensors too small to share
  TemporaryFolder folder;
  Differences largest;
  std::string worst;
  for (size_t i = 0; i < configs.size(); ++i) {
    const auto model = RandomModel(configs[i], i + 1);
    const Differences d = Compare(*model, folder.path());
    EXPECT_LE(d.prefill, tolerance) << TextOf(configs[i]);
    EXPECT_LE(d.steps, tolerance) << TextOf(configs[i]);
    // Logits that hardly move would agree whatever was wrong.
    EXPECT_GT(d.spread, 0.1) << TextOf(configs[i]);
    if (d.prefill > largest.prefill) worst = TextOf(configs[i]);
    largest.prefill = std::max(largest.prefill, d.prefill);
    largest.steps = std::max(largest.steps, d.steps);
  }
  std::cout << what << ": " << configs.size()
            << " configurations, largest difference on logits: prefill "
            << largest.prefill << " (" << worst << "), steps " << largest.steps
            << "\n";
}

TEST(ThreeWay, EveryConfiguration) {
  CompareAll(AllConfigs(), "language models");
}

TEST(ThreeWay, SequenceToSequence) {
  CompareAll(EncoderConfigs(Arch::kSeq2seq), "sequence-to-sequence");
}

// "prefill" is a text alone, "steps" one among others.
TEST(ThreeWay, Classifiers) {
  CompareAll(EncoderConfigs(Arch::kEncoder), "classifiers");
}

TEST(ThreeWay, Hybrids) { CompareAll(HybridConfigs(), "hybrids", 3e-5); }

TEST(ThreeWay, Gated) { CompareAll(GatedConfigs(), "gated mixers"); }

TEST(ThreeWay, SoftmaxForms) {
  CompareAll(SoftmaxConfigs(), "forms of softmax attention", 3e-5);
}

TEST(ThreeWay, ParallelMixers) {
  CompareAll(ParallelConfigs(), "parallel mixers", 3e-5);
  std::vector<ModelConfig> classifiers;
  for (const char* layers : {"linear+full",
                             "full:n_heads=2:branch_factor=3+"
                             "linear:d_value=11"}) {
    ModelConfig config = SmallConfig(Arch::kEncoder);
    config.layers = LayersFromText(layers);
    classifiers.push_back(Finished(config));
    config = SmallConfig(Arch::kSeq2seq);
    config.layers = LayersFromText(layers);
    classifiers.push_back(Finished(config));
  }
  CompareAll(classifiers, "with an encoder", 3e-5);
}

TEST(ThreeWay, BiasesOfFeedForwardParts) {
  CompareAll(BiasConfigs(), "biases of feed-forward parts", 3e-5);
}

TEST(ThreeWay, Mixtures) {
  CompareAll(MixtureConfigs(), "mixtures of experts", 3e-5);
}

TEST(ThreeWay, Blocks) {
  for (const Arch arch : {Arch::kDecoder, Arch::kEncoder, Arch::kSeq2seq}) {
    CompareAll(BlockConfigs(arch), Name(arch), 3e-5);
  }
}

TEST(ThreeWay, ImageModels) { CompareAll(ImageConfigs(), "image models"); }

// The sizes `tarn train` starts from, both kinds, initial weights.
TEST(ThreeWay, DefaultSizes) {
  TemporaryFolder folder;
  for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
    ModelConfig config;
    config.attention = kind;
    FinishConfig(config);
    torch::manual_seed(1);
    const auto model = nn::MakeModel(config);
    model->eval();
    const Differences d = Compare(*model, folder.path());
    EXPECT_LE(d.prefill, kTolerance) << Name(kind);
    EXPECT_LE(d.steps, kTolerance) << Name(kind);
    EXPECT_GT(d.spread, 0.1) << Name(kind);
    std::cout << Name(kind) << ", default sizes: prefill " << d.prefill
              << ", steps " << d.steps << "\n";
  }
}

}  // namespace
}  // namespace tarn
