// Mamba, Falcon-Mamba and Mamba-2 (arXiv 2312.00752, 2410.05355, 2405.21060):
// layers of one part, whose first product makes everything at once.
#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

ModelConfig ReadStack(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostSize);
  config.d_model = from.Integer("hidden_size", 1, kMostSize);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("layer_norm_epsilon", 1e-5);
  config.final_norm = true;
  config.positions = Positions::kNone;
  config.feed_forward = FeedForwardOf("none");
  config.tied_head = from.Flag("tie_word_embeddings", true);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  ReadMambaBiases(from, "use_bias", "use_conv_bias", config);
  SetKey(config, "conv_width", from.Integer("conv_kernel", 2, 8, 4));
  // How weights began, and how sums are rounded in 16 bits.
  from.Ignore({"rescale_prenorm_residual", "residual_in_fp32",
               "time_step_floor", "time_step_init_scheme", "time_step_max",
               "time_step_min", "time_step_scale", "use_associative_scan",
               "use_mambapy", "chunk_size"});
  return config;
}

ModelConfig ReadMamba(PublishedConfig& from) {
  ModelConfig config = ReadStack(from);
  config.attention = MixerKind("mamba1");
  const int64_t expand = from.Integer("expand", 1, 64, 2);
  const int64_t channels =
      from.Integer("intermediate_size", 1, kMostSize, expand * config.d_model);
  config.n_heads = 1;  // heads make no difference
  config.d_value = channels;
  config.d_key = from.Integer("state_size", 1, kMostSize, 16);
  const int64_t rank = (config.d_model + 15) / 16;
  SetKey(config, "gate_rank",
         from.HasWord("time_step_rank", "auto")
             ? rank
             : from.Integer("time_step_rank", 1, kMostSize, rank));
  return config;
}

// The steps' numbers, keys and queries have norms without weights.
ModelConfig ReadFalconMamba(PublishedConfig& from) {
  ModelConfig config = ReadMamba(from);
  SetKey(config, "selection_norm", true);
  SetKey(config, "selection_norm_eps", from.Real("mixer_rms_eps", 1e-6));
  return config;
}

ModelConfig ReadMamba2Stack(PublishedConfig& from) {
  ModelConfig config = ReadStack(from);
  config.attention = MixerKind("mamba2");
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.n_heads = from.Integer("num_heads", 1, kMostSize, 128);
  config.d_value = from.Integer("head_dim", 1, kMostSize, 64);
  config.d_key = from.Integer("state_size", 1, kMostSize, 128);
  const int64_t expand = from.Integer("expand", 1, 64, 2);
  if (config.n_heads * config.d_value != expand * config.d_model) {
    from.Refuse("num_heads", "num_heads * head_dim = expand * hidden_size",
                StrCat(config.n_heads, " * ", config.d_value));
  }
  SetKey(config, "key_heads", from.Integer("n_groups", 1, kMostSize, 8));
  ReadStepLimits(from, config);
  from.Ignore({"time_step_rank"});
  return config;
}

void PublishStack(const ModelConfig& config, PublishedKeys& to) {
  PublishStackSizes(config, to);
  to["layer_norm_epsilon"] = config.norm_eps;
  to["hidden_act"] = "silu";
  to["use_bias"] = KeyOf<bool>(config, "recurrent_in_bias");
  to["use_conv_bias"] = true;
  to["conv_kernel"] = KeyOf<int64_t>(config, "conv_width");
  to["state_size"] = config.d_key;
}

// Whole multiples of the width: what the classes compute the channels from.
void PublishExpand(const ModelConfig& config, PublishedKeys& to) {
  to["expand"] = config.n_heads * config.d_value / config.d_model;
}

void PublishMamba(const ModelConfig& config, PublishedKeys& to) {
  PublishStack(config, to);
  PublishExpand(config, to);
  to["time_step_rank"] = RowsOfWeight(config, "decay_down_projection.weight");
}

void PublishFalconMamba(const ModelConfig& config, PublishedKeys& to) {
  PublishMamba(config, to);
  to["mixer_rms_eps"] = KeyOf<double>(config, "selection_norm_eps");
}

void PublishMamba2(const ModelConfig& config, PublishedKeys& to) {
  PublishStack(config, to);
  PublishExpand(config, to);
  to["num_heads"] = config.n_heads;
  to["head_dim"] = config.d_value;
  to["n_groups"] = KeyHeadsOf(config);
  PublishStepLimits(config, to);
}

void AddAround(const ModelConfig& config, PublishedTensors& from,
               ImportedTensors& to) {
  to.Add("value_embedding.weight", from("backbone.embeddings.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    to.AddLinear(from, StrCat("layers.", i, ".norm1"),
                 StrCat("backbone.layers.", i, ".norm"));
  }
  to.AddLinear(from, "norm", "backbone.norm_f");
  to.AddHead(from, "lm_head.weight", "backbone.embeddings.weight");
}

void MambaTensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddAround(config, from, to);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    AddMamba1(config, StrCat("layers.", i, ".attention."),
              StrCat("backbone.layers.", i, ".mixer."), from, to);
  }
}

void Mamba2Tensors(const ModelConfig& config, PublishedTensors& from,
                   ImportedTensors& to) {
  AddAround(config, from, to);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    AddMamba2(config, StrCat("layers.", i, ".attention."),
              StrCat("backbone.layers.", i, ".mixer."), from, to);
  }
}

}  // namespace

std::vector<Importer> MambaImporters() {
  return {{"mamba", ReadMamba, MambaTensors, "MambaForCausalLM", PublishMamba},
          {"falcon_mamba", ReadFalconMamba, MambaTensors,
           "FalconMambaForCausalLM", PublishFalconMamba},
          {"mamba2", ReadMamba2Stack, Mamba2Tensors, "Mamba2ForCausalLM",
           PublishMamba2}};
}

}  // namespace tarn
