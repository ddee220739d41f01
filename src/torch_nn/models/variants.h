// Configurations of models that tests go through: every architecture, mixer,
// feature map, norm and table of positions, each at a size that takes
// milliseconds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/feature_map.h"
#include "core/text.h"

namespace tarn::nn::models_test {

constexpr int64_t kVocab = 13;

inline ModelConfig SmallConfig(Arch arch) {
  ModelConfig config;
  config.arch = arch;
  config.vocab_size = kVocab;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_key = 4;
  config.d_value = 3;
  config.d_ff = 20;
  config.max_positions = 40;
  config.dropout = 0.1;  // must not act in eval mode
  if (arch == Arch::kEncoder) config.n_classes = 3;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
  return config;
}

// Kinds of attention besides linear and full whose weights the oracle knows,
// and every further feature map.
inline std::vector<ModelConfig> KindVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  const auto add = [&](const std::function<void(ModelConfig&)>& change) {
    configs.push_back(SmallConfig(arch));
    configs.back().d_value = 4;  // aft: as d_key
    change(configs.back());
  };
  for (const int64_t context : {1, 3, 4}) {
    add([&](ModelConfig& c) {
      c.attention = MixerKind("local"), SetKey(c, "local_context", context);
    });
  }
  for (const int64_t topk : {2, 32}) {
    add([&](ModelConfig& c) {
      c.attention = MixerKind("exact-topk"), SetKey(c, "topk", topk);
    });
  }
  add([](ModelConfig& c) {
    c.attention = MixerKind("exact-topk"), SetKey(c, "topk", 3),
    c.positions = Positions::kRotary;
  });
  for (const int64_t limit : {3, 100}) {
    add([&](ModelConfig& c) {
      c.attention = MixerKind("conditional-full"),
      SetKey(c, "length_limit", limit);
      SetKey(c, "feature_map", FeatureMap::kFavorPositive);
    });
  }
  add([](ModelConfig& c) {
    c.attention = MixerKind("aft-full"), SetKey(c, "max_sequence_length", 9);
    SetKey(c, "aft_parameterization", 5);
  });
  add([](ModelConfig& c) { c.attention = MixerKind("aft-simple"); });
  for (const FeatureMap map :
       {FeatureMap::kRelu2, FeatureMap::kPoly2, FeatureMap::kFavor,
        FeatureMap::kFavorPositive, FeatureMap::kRff, FeatureMap::kSmoothedRff,
        FeatureMap::kGrf}) {
    add([&](ModelConfig& c) {
      SetKey(c, "feature_map", map);
      SetKey(c, "n_dims", UsesOmega(map) ? 9 : 0);
      // Rows of relu's features may be all 0; the oracle divides by them.
      if (map == FeatureMap::kRelu2 || map == FeatureMap::kGrf) {
        SetKey(c, "denominator", Denominator::kCompat), SetKey(c, "eps", 0.25);
      }
      if (map == FeatureMap::kPoly2) c.positions = Positions::kRotary;
    });
  }
  for (const FeatureMap map :
       {FeatureMap::kFavor, FeatureMap::kFavorPositive}) {
    add([&](ModelConfig& c) {
      SetKey(c, "feature_map", map), SetKey(c, "stabilise", true);
    });
  }
  add([](ModelConfig& c) { SetKey(c, "denominator", Denominator::kSigned); });
  return configs;
}

// Stacks of different mixers, with options of their own; kinds of norms and
// feed-forward parts.
inline std::vector<ModelConfig> HybridVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  for (const char* layers :
       {"linear,full",
        "full,linear,linear:feature_map=relu2:denominator=compat",
        "linear,aft-simple", "aft-full,exact-topk:topk=3",
        "local:local_context=4,linear:feature_map=favor-positive",
        "linear:feature_map=rff,linear:stabilise=true:feature_map=favor,full",
        "conditional-full:length_limit=3,linear:feature_map=poly2"}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      ModelConfig config = SmallConfig(arch);
      config.n_layers = 3;
      config.d_value = 4;  // aft: as d_key
      SetKey(config, "eps", 0.25);
      config.norm = norm;
      config.layers = LayersFromText(layers);
      configs.push_back(config);
      config.positions = Positions::kRotary;
      if (!Contains(layers, "aft")) configs.push_back(config);
    }
  }
  // Other norms and feed-forward parts, by themselves and together.
  for (const int choice : {1, 2, 3}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      ModelConfig config = SmallConfig(arch);
      config.norm = norm;
      config.norm_eps = 0.01;  // large, so that its place would show
      if (choice & 1) config.norm_kind = NormKind::kRms;
      if (choice & 2) config.feed_forward = FeedForwardOf("swiglu");
      configs.push_back(config);
      config.layers = LayersFromText("linear,full");
      configs.push_back(config);
    }
  }
  return configs;
}

// The same model with a head of two logistics a byte.
inline ModelConfig OfImages(ModelConfig config) {
  config.task = Task::kImage;
  config.vocab_size = 256;
  config.image_height = config.image_width = 2;
  config.image_channels = 3;
  config.n_mixtures = 2;
  return config;
}

// Mixers with a decaying state, by themselves and among others: decoders only.
inline std::vector<ModelConfig> GatedVariants() {
  std::vector<ModelConfig> configs;
  const auto add = [&](const char* layers) -> ModelConfig& {
    ModelConfig config = SmallConfig(Arch::kDecoder);
    config.n_layers = 3;
    config.norm_eps = 0.01;  // large, so that its place would show
    SetConfigField(config, "layers", layers);
    configs.push_back(config);
    return configs.back();
  };
  for (const char* layers :
       {"retnet",
        "lightning",
        "mamba2",
        "gla",
        "hgrn2",
        "deltanet",
        "gdn",
        "kda",
        "norm-linear:qk_map=hadamard",
        "norm-linear:qk_map=hedgehog:divided_sums=true",
        "gdn:key_heads=1:negative_eigenvalues=true",
        "mamba2:key_heads=1:conv_width=2",
        "deltanet:conv_width=0",
        "mamba2:mamba2_norm=false:least_step=0.3,mamba2:mamba2_norm_first=true",
        "gla:gate_rank=3,local:local_context=4",
        "mamba1",
        "mamba1:selection_norm=true:selection_norm_eps=0.3",
        "mamba1:gate_rank=3:conv_width=0,linear",
        "rg-lru:conv_width=2",
        "mlstm,mlstm:gate_softcap=2.0",
        "short-conv:conv_bias=true,rg-lru:conv_width=0"}) {
    add(layers);
    add(layers).norm = Norm::kPost;
    ModelConfig& modern = add(layers);
    modern.norm_kind = NormKind::kRms;
    modern.feed_forward = FeedForwardOf("swiglu");
    modern.positions = Positions::kNone;
    modern.tied_head = true;
  }
  for (const char* layers : {"retnet", "gdn,gdn,full", "retnet,linear"}) {
    add(layers).positions = Positions::kRotary;
  }
  for (const char* layers :
       {"gated-full", "gated-full:output_gate=false:query_key_norm=false",
        "gated-full:key_heads=1", "gdn,gdn,gated-full:key_heads=1"}) {
    add(layers);
    add(layers).positions = Positions::kRotary;
    ModelConfig& partial = add(layers);
    partial.positions = Positions::kRotary;
    SetKey(partial, "rotary_width", 2);
  }
  for (const char* layers :
       {"full:key_heads=1:out_bias=false:head_norm=full",
        "full:key_heads=1:window=3:head_gate=true:head_norm=head",
        "full:sinks=true:softcap=0.7:score_scale=0.6,full:window=2",
        "local:local_context=4:qkv_bias=false:sinks=true",
        "full:latent_width=5:qkv_bias=false"}) {
    add(layers);
    if (std::string(layers).find("latent") == std::string::npos) {
      add(layers).positions = Positions::kRotary;
    }
  }
  for (const char* layers :
       {"full:rotate=false,full", "full:own_rotary_base=3,full:window=2"}) {
    ModelConfig& curved = add(layers);
    curved.positions = Positions::kRotary;
    curved.activation = Activation::kGeluTanh;
    ModelConfig& gated = add(layers);
    gated.positions = Positions::kRotary;
    gated.feed_forward = FeedForwardOf("geglu-tanh");
    gated.norm = Norm::kPre;
    gated.parallel_residual = true;
  }
  for (const char* layers :
       {"full:latent_width=5:shared_key_width=2:rotary_width=2:qkv_bias=false",
        "full:latent_width=5:shared_key_width=2:rotary_width=2:qkv_bias=false:"
        "query_latent_width=3:out_bias=false:sinks=true"}) {
    add(layers).positions = Positions::kRotary;
  }
  // Parallel mixers.
  for (const char* layers :
       {"mamba2+full", "gdn:n_heads=3+full:window=3:key_heads=1,linear",
        "linear:branch_factor=0.5+local:local_context=2+gla"}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost, Norm::kBoth}) {
      add(layers).norm = norm;
    }
    add(layers).positions = Positions::kRotary;
    add(layers).feed_forward = FeedForwardOf("channel-mix");
  }
  for (const char* layers : {"rwkv6", "rwkv7", "rwkv7:gate_rank=3,full"}) {
    ModelConfig& config = add(layers);
    config.d_value = config.d_key;
  }
  for (const char* layers :
       {"linear:feed_forward=swiglu,full", "linear:feed_forward=relu2",
        "full:feed_forward=geglu,linear:feed_forward=channel-mix"}) {
    add(layers).feed_forward_bias = FeedForwardBias::kAll;
  }
  add("linear,full:feed_forward=swiglu").feed_forward_bias =
      FeedForwardBias::kNone;
  for (const bool tied : {false, true}) {
    ModelConfig& config = add("linear,full");
    config.head_bias = false;
    config.tied_head = tied;
  }
  // With the values of the first layer in the later ones, and a norm of the
  // input.
  for (const char* layers :
       {"rwkv7:value_residual=true",
        "full,rwkv7:value_residual=true:gate_rank=3,rwkv7:value_residual=true",
        "linear+rwkv7:value_residual=true"}) {
    ModelConfig& config = add(layers);
    config.d_value = config.d_key;
    config.input_norm = true;
    config.feed_forward = FeedForwardOf("channel-mix");
  }
  for (const char* layers :
       {"mamba2:recurrent_in_bias=true:recurrent_out_bias=true",
        "gdn:recurrent_in_bias=true,mamba1:recurrent_out_bias=true",
        "hgrn2:recurrent_in_bias=true,mamba1:recurrent_in_bias=true",
        "kda:recurrent_in_bias=true:recurrent_out_bias=true,gla:recurrent_in_"
        "bias=true"}) {
    add(layers);
  }
  // With bounds of the decay that all layers learn together.
  for (const char* layers :
       {"hgrn2:learned_bounds=true",
        "full,hgrn2:learned_bounds=true,linear+hgrn2:learned_bounds=true"}) {
    add(layers).n_layers = 3;
  }
  // Feed-forward parts with a row of their own in the state of each layer.
  for (const char* layers :
       {"linear", "full", "aft-simple,local:local_context=3", "rwkv7",
        "gdn,rwkv6,full"}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      ModelConfig& config = add(layers);
      config.d_value = config.d_key;
      config.norm = norm;
      config.feed_forward = FeedForwardOf("channel-mix");
    }
  }
  configs.back().norm_kind = NormKind::kRms;
  // Other feed-forward parts, for all layers or by layer.
  for (const char* layers :
       {"mamba2:feed_forward=none", "linear:feed_forward=none,full",
        "gdn:feed_forward=geglu,full:feed_forward=relu2"}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) add(layers).norm = norm;
  }
  for (const char* shared : {"0", "5"}) {
    ModelConfig& config = add("linear:feed_forward=moe,full");
    SetConfigField(config, "experts", "4");
    SetConfigField(config, "d_shared", shared);
    SetConfigField(config, "shared_gate", *shared == '5' ? "true" : "false");
    if (*shared == '0') SetConfigField(config, "router", "biased-sigmoid");
  }
  configs.push_back(OfImages(SmallConfig(Arch::kDecoder)));
  configs.back().feed_forward = FeedForwardOf("channel-mix");
  return configs;
}

// Kinds that decide by hashes: whole sequences only.
inline std::vector<ModelConfig> HashVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  for (const AttentionKind kind :
       {MixerKind("clustered"), MixerKind("improved-clustered"),
        MixerKind("causal-improved-clustered"), MixerKind("reformer")}) {
    ModelConfig config = SmallConfig(arch);
    config.attention = kind;
    SetKey(config, "clusters", 3);
    SetKey(config, "iterations", 4);
    SetKey(config, "bits", 7);
    SetKey(config, "topk", 2);
    SetKey(config, "hash_chunk", 2);
    SetKey(config, "rounds", 2);
    try {
      FinishConfig(config);
    } catch (const ArgumentError&) {
      continue;  // has the other causality
    }
    configs.push_back(config);
  }
  return configs;
}

// The same model with frames for tokens and classes of every frame.
inline ModelConfig OfFrames(ModelConfig config) {
  config.task = Task::kCtc;
  config.n_classes = 5;
  config.input_dim = 7;
  return config;
}

inline bool HasRecurrentForm(const ModelConfig& config) {
  for (const AttentionKind kind : MixersOf(config)) {
    if (!Spec(kind).can.recurrent) return false;
  }
  return true;
}

// Both tasks of an earlier model, and its other options.
inline std::vector<ModelConfig> EarlierVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  for (const Task task : {Task::kLm, Task::kClassify}) {
    ModelConfig config = SmallConfig(arch);
    config.task = task;
    if (task == Task::kClassify) config.n_classes = 4;
    configs.push_back(config);
    config.kernel_size = 4;
    config.activation = Activation::kRelu;
    config.n_layers = 1;
    config.tied_head = task == Task::kLm;
    config.bidirectional = arch == Arch::kLstm && task == Task::kClassify;
    configs.push_back(config);
    config.n_layers = 3;
    configs.push_back(config);
  }
  if (arch == Arch::kLstm) {
    configs.push_back(OfFrames(SmallConfig(arch)));
    configs.push_back(configs.back());
    configs.back().bidirectional = true;
  }
  for (ModelConfig& each : configs) FinishConfig(each);
  return configs;
}

// Kinds, places of norms and positions of an attention model.
inline std::vector<ModelConfig> Variants(Arch arch) {
  if (arch > Arch::kSeq2seq) return EarlierVariants(arch);
  std::vector<ModelConfig> configs;
  for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      for (const Positions positions :
           {Positions::kNone, Positions::kSinusoidal, Positions::kLearned,
            Positions::kRotary}) {
        ModelConfig config = SmallConfig(arch);
        config.attention = kind;
        config.norm = norm;
        config.positions = positions;
        configs.push_back(config);
      }
    }
  }
  ModelConfig config = SmallConfig(arch);
  config.positions = Positions::kRotary;
  config.rotary_place = RotaryPlace::kAfter;
  configs.push_back(config);
  SetKey(config, "denominator", Denominator::kNone);
  configs.push_back(config);
  config = SmallConfig(arch);
  config.positions = Positions::kSinusoidal;
  config.position_combine = PositionCombine::kConcat;
  config.final_norm = false;
  configs.push_back(config);
  config = SmallConfig(arch);
  SetKey(config, "denominator", Denominator::kCompat);
  config.activation = Activation::kRelu;
  config.tied_head = arch != Arch::kEncoder;
  configs.push_back(config);
  if (arch == Arch::kSeq2seq) {  // one kind within, another across
    config.cross_attention = MixerKind("full");
    configs.push_back(config);
    config.attention = MixerKind("full");
    config.cross_attention = MixerKind("linear");
    configs.push_back(config);
  }
  if (arch == Arch::kEncoder) {
    const size_t tokens = configs.size();
    for (size_t i = 0; i < tokens; ++i) configs.push_back(OfFrames(configs[i]));
  }
  if (arch == Arch::kDecoder) configs.push_back(OfImages(SmallConfig(arch)));
  const std::vector<ModelConfig> kinds = KindVariants(arch);
  configs.insert(configs.end(), kinds.begin(), kinds.end());
  const std::vector<ModelConfig> hybrids = HybridVariants(arch);
  configs.insert(configs.end(), hybrids.begin(), hybrids.end());
  if (arch == Arch::kDecoder) {
    const std::vector<ModelConfig> gated = GatedVariants();
    configs.insert(configs.end(), gated.begin(), gated.end());
  }
  if (arch == Arch::kEncoder) configs.push_back(OfFrames(hybrids.front()));
  if (arch == Arch::kDecoder) configs.push_back(OfImages(hybrids.front()));
  for (ModelConfig& each : configs) FinishConfig(each);
  return configs;
}

inline std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.arch), " ", LayersText(c), " ", Name(c.cross_attention),
                " ", Name(c.positions), " ", Name(c.rotary_place), " ",
                Name(c.norm), " ", Name(c.norm_kind), " ", Name(c.feed_forward),
                " ", Name(KeyOf<Denominator>(c, "denominator")), " ",
                Name(KeyOf<FeatureMap>(c, "feature_map")), " ", Name(c.task),
                " ", c.n_layers);
}

inline const std::vector<Arch> kArchs = {Arch::kDecoder, Arch::kEncoder,
                                         Arch::kSeq2seq, Arch::kRnn,
                                         Arch::kLstm,    Arch::kCnn};

}  // namespace tarn::nn::models_test
