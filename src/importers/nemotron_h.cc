// Nemotron-H (arXiv 2504.03624) and Nemotron 3: blocks of one part each,
// Mamba-2, softmax attention without positions, a feed-forward part or a
// mixture of experts. A block of a feed-forward part and the mixer before it
// are one layer of tarn's.
#include "config/bounds.h"
#include "config/feed_forward_form.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostNemotron = int64_t{1} << 24;

// Words of layers_block_type, now and before transformers 5, and the letters of
// hybrid_override_pattern.
struct BlockWord {
  const char *word, *old;
  char letter;
  const char *mixer, *part;
};
constexpr BlockWord kBlocks[] = {
    {"linear_attention", "mamba", 'M', "mamba2", nullptr},
    {"full_attention", "attention", '*', "full", nullptr},
    {"mlp", "mlp", '-', nullptr, "relu2"},
    {"moe", "moe", 'E', nullptr, "moe"}};

std::vector<const BlockWord*> ReadBlocks(PublishedConfig& from) {
  std::vector<const BlockWord*> blocks;
  const auto find = [&](const char* key, const auto& is,
                        const std::string& given) {
    for (const BlockWord& block : kBlocks) {
      if (is(block)) return blocks.push_back(&block);
    }
    from.Refuse(key, "blocks of mamba, attention, mlp and moe", Quoted(given));
  };
  const std::string letters = from.Word("hybrid_override_pattern", "");
  if (from.Has("layers_block_type")) {
    for (const std::string& word :
         from.WordsUpTo("layers_block_type", 2 * kMaxLayers)) {
      find(
          "layers_block_type",
          [&](const BlockWord& b) { return word == b.word || word == b.old; },
          word);
    }
  } else {
    for (const char letter : letters) {
      find(
          "hybrid_override_pattern",
          [&](const BlockWord& b) { return letter == b.letter; },
          std::string(1, letter));
    }
  }
  if (blocks.empty() || static_cast<int64_t>(blocks.size()) > 2 * kMaxLayers) {
    from.Refuse("layers_block_type", StrCat("1 to ", 2 * kMaxLayers, " blocks"),
                StrCat(blocks.size()));
  }
  const int64_t count = static_cast<int64_t>(blocks.size());
  from.Integer("num_hidden_layers", count, count, count);
  return blocks;
}

LayerOptions ReadNemotronMamba(PublishedConfig& from, ModelConfig& config) {
  ReadMambaBiases(from, "use_bias", "use_conv_bias", config);
  from.Want("mamba_proj_bias", false);
  from.Want("mamba_hidden_act", "silu");
  SetKey(config, "conv_width", from.Integer("conv_kernel", 2, 8, 4));
  // transformers reads this key as a limit, and time_step_limit not at all.
  SetKey(config, "least_step", from.Real("time_step_min", 0.001));
  from.Ignore({"time_step_limit", "time_step_max", "time_step_floor",
               "time_step_rank", "expand", "chunk_size", "use_mamba_kernels",
               "mamba_ssm_cache_dtype", "rescale_prenorm_residual",
               "residual_in_fp32"});
  const auto size = [&](const char* key, int64_t value) {
    return StrCat(from.Integer(key, 1, kMostNemotron, value));
  };
  return {{"n_heads", size("mamba_num_heads", 128)},
          {"d_value", size("mamba_head_dim", 64)},
          {"d_key", size("ssm_state_size", 128)},
          {"key_heads", size("n_groups", 8)}};
}

void ReadNemotronExperts(PublishedConfig& from, bool mixed,
                         ModelConfig& config) {
  const char* const keys[] = {"n_routed_experts",
                              "num_experts_per_tok",
                              "moe_intermediate_size",
                              "moe_shared_expert_intermediate_size",
                              "norm_topk_prob",
                              "routed_scaling_factor",
                              "n_group",
                              "topk_group",
                              "moe_latent_size"};
  from.Ignore({"n_shared_experts", "moe_shared_expert_overlap",
               "output_router_logits"});
  if (!mixed) {
    for (const char* key : keys) from.Ignore({key});
    return;
  }
  if (config.feed_forward_bias == FeedForwardBias::kAll) {
    from.Refuse("mlp_bias", "false in a model with experts", "true");
  }
  SetKey(config, "experts", from.Integer(keys[0], 1, 4096, 8));
  SetKey(config, "experts_per_token", from.Integer(keys[1], 1, 256, 2));
  SetKey(config, "d_expert", from.Integer(keys[2], 1, kMostNemotron, 7688));
  SetKey(config, "d_shared", from.Integer(keys[3], 1, kMostNemotron, 7688));
  config.own.insert_or_assign("expert_part", int64_t{2});  // relu2
  config.own.insert_or_assign("router", int64_t{2});       // biased-sigmoid
  SetKey(config, "router_normalize", from.Flag(keys[4], true));
  SetKey(config, "router_scale", from.Real(keys[5], 1.0));
  from.Integer(keys[6], 1, 1, 1);
  from.Integer(keys[7], 1, 1, 1);
  from.WantNull(keys[8]);
}

void ReadNemotronLayers(PublishedConfig& from, ModelConfig& config) {
  const LayerOptions mamba = ReadNemotronMamba(from, config);
  const LayerOptions softmax = {
      {"key_heads", StrCat(from.Integer("num_key_value_heads", 1, kMostNemotron,
                                        config.n_heads))}};
  bool mixed = false, open = false;  // whether a layer still lacks its part
  for (const BlockWord* block : ReadBlocks(from)) {
    if (block->mixer != nullptr) {
      config.layers.push_back(
          {MixerKind(block->mixer), block->mixer[0] == 'm' ? mamba : softmax});
      config.layers.back().options.push_back({"feed_forward", "none"});
    } else if (!open) {
      from.Refuse("layers_block_type", "a mixer before each feed-forward block",
                  StrCat("'", block->word, "' without one"));
    } else {
      config.layers.back().options.back().second = block->part;
      mixed = mixed || std::string_view(block->part) == "moe";
    }
    open = block->mixer != nullptr;
  }
  config.n_layers = static_cast<int64_t>(config.layers.size());
  ReadNemotronExperts(from, mixed, config);
}

ModelConfig ReadNemotronH(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostNemotron);
  config.d_model = from.Integer("hidden_size", 1, kMostNemotron);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostNemotron, 32);
  config.d_key = config.d_value =
      from.Integer("head_dim", 1, kMostNemotron,
                   from.Integer("attention_head_dim", 1, kMostNemotron, 128));
  config.d_ff = from.Integer("intermediate_size", 1, kMostNemotron, 21504);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("layer_norm_epsilon", 1e-5);
  for (const char* other : {"norm_eps", "rms_norm_eps"}) {
    const double given = from.Real(other, config.norm_eps);
    if (given == config.norm_eps) continue;
    from.Refuse(other, StrCat("layer_norm_epsilon, ", config.norm_eps),
                StrCat(given));
  }
  config.final_norm = true;
  config.positions = Positions::kNone;
  config.feed_forward = FeedForwardOf("relu2");
  if (from.Flag("mlp_bias", false)) {
    config.feed_forward_bias = FeedForwardBias::kAll;
  }
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  from.Ignore({"tie_word_embeddings"});  // transformers has a head in any case
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("mlp_hidden_act", "relu2");
  from.Want("attention_bias", false);
  from.WantNull("sliding_window");
  from.Ignore({"num_logits_to_keep", "hidden_dropout", "rope_theta",
               "num_nextn_predict_layers", "mtp_layers_block_type",
               "mtp_hybrid_override_pattern"});
  ReadNemotronLayers(from, config);
  return config;
}

void PublishNemotronH(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig mamba = FirstView(config, "mamba2");
  const ModelConfig softmax = FirstView(config, "full");
  PublishSoftmaxStack(config, to);
  to.erase("num_hidden_layers");  // that of the blocks
  to.erase("hidden_act");
  to.erase("rms_norm_eps");
  to["layer_norm_epsilon"] = config.norm_eps;
  to["mlp_hidden_act"] = "relu2";
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
  PublishedKeys blocks = PublishedKeys::array();
  for (int64_t i = 0; i < config.n_layers; ++i) {
    for (const BlockWord& block : kBlocks) {
      if (block.mixer != nullptr ? HasMixer(config, i, block.mixer)
                                 : HasPart(config, i, block.part)) {
        blocks.push_back(block.word);
      }
    }
  }
  to["layers_block_type"] = std::move(blocks);
  to["mamba_num_heads"] = mamba.n_heads;
  to["mamba_head_dim"] = mamba.d_value;
  to["ssm_state_size"] = mamba.d_key;
  to["n_groups"] = KeyHeadsOf(mamba);
  to["conv_kernel"] = KeyOf<int64_t>(mamba, "conv_width");
  to["use_bias"] = KeyOf<bool>(mamba, "recurrent_in_bias");
  to["use_conv_bias"] = true;
  to["time_step_min"] = KeyOf<double>(mamba, "least_step");
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  if (mixed.feed_forward != FeedForwardOf("moe")) return;
  PublishChoice(mixed, to);
  to["n_routed_experts"] = KeyOf<int64_t>(mixed, "experts");
  to["moe_shared_expert_intermediate_size"] = KeyOf<int64_t>(mixed, "d_shared");
  to["routed_scaling_factor"] = KeyOf<double>(mixed, "router_scale");
}

void AddNemotronPart(const ModelConfig& view, const std::string& own,
                     const std::string& theirs, PublishedTensors& from,
                     ImportedTensors& to) {
  const auto maps = [&](const std::string& mine, const std::string& published,
                        bool bias) {
    to.AddLinear(from, mine + "linear1", published + "up_proj", bias);
    to.AddLinear(from, mine + "linear2", published + "down_proj", bias);
  };
  if (view.feed_forward != FeedForwardOf("moe")) {
    maps(own, theirs, view.feed_forward_bias == FeedForwardBias::kAll);
    return;
  }
  to.AddLinear(from, own + "router", theirs + "gate");
  to.Add(own + "router_bias", from(theirs + "gate.e_score_correction_bias"));
  AddExperts(view, own, theirs + "experts.", kPlainNames, from, to);
  maps(own + "shared.", theirs + "shared_experts.", /*bias=*/false);
}

void NemotronHTensors(const ModelConfig& config, PublishedTensors& from,
                      ImportedTensors& to) {
  // transformers 5 calls it "model." in memory, and files "backbone.".
  const std::string root =
      from.Has("model.norm_f.weight") ? "model." : "backbone.";
  from.Skip("mtp.");  // layers that predict the tokens after the next
  to.Add("value_embedding.weight", from(root + "embeddings.weight"));
  int64_t block = 0;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat(root, "layers.", block++, ".");
    if (view.attention == MixerKind("mamba2")) {
      AddMamba2(view, own + "attention.", theirs + "mixer.", from, to);
    } else {
      AddSoftmax(view, own + "attention.", theirs + "mixer.", from, to);
    }
    to.AddLinear(from, own + "norm1", theirs + "norm");
    if (!HasFeedForward(view)) continue;
    const std::string part = StrCat(root, "layers.", block++, ".");
    AddNemotronPart(view, own, part + "mixer.", from, to);
    to.AddLinear(from, own + "norm2", part + "norm");
  }
  to.AddLinear(from, "norm", root + "norm_f");
  to.AddHead(from, "lm_head.weight", root + "embeddings.weight");
}

}  // namespace

std::vector<Importer> NemotronImporters() {
  return {{"nemotron_h", ReadNemotronH, NemotronHTensors,
           "NemotronHForCausalLM", PublishNemotronH}};
}

}  // namespace tarn
