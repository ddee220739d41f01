// Mamba and Mamba-2 (arXiv 2312.00752, 2405.21060): layers of one part, whose
// first product makes everything at once.
#include <algorithm>

#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 24;

ModelConfig ReadStack(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostSize);
  config.d_model = from.Integer("hidden_size", 1, kMostSize);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMostSize);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("layer_norm_epsilon", 1e-5);
  config.final_norm = true;
  config.positions = Positions::kNone;
  config.feed_forward = FeedForwardOf("none");
  config.tied_head = from.Flag("tie_word_embeddings", true);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  from.Want("use_bias", false);
  from.Want("use_conv_bias", true);
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

ModelConfig ReadMamba2(PublishedConfig& from) {
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
  // Its norm is one over all channels, tarn's one for each group.
  if (from.Integer("n_groups", 1, kMostSize, 8) != 1) {
    from.Refuse("n_groups", "1", "more");
  }
  SetKey(config, "key_heads", 1);
  from.WantUnlimited("time_step_limit");
  from.Ignore({"time_step_rank"});
  return config;
}

void PublishStack(const ModelConfig& config, PublishedKeys& to) {
  to["vocab_size"] = config.vocab_size;
  to["hidden_size"] = config.d_model;
  to["num_hidden_layers"] = config.n_layers;
  to["layer_norm_epsilon"] = config.norm_eps;
  to["tie_word_embeddings"] = config.tied_head;
  to["hidden_act"] = "silu";
  to["use_bias"] = false;
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
  to["time_step_rank"] = KeyOf<int64_t>(config, "gate_rank");
}

void PublishMamba2(const ModelConfig& config, PublishedKeys& to) {
  PublishStack(config, to);
  PublishExpand(config, to);
  to["num_heads"] = config.n_heads;
  to["head_dim"] = config.d_value;
  to["n_groups"] = KeyOf<int64_t>(config, "key_heads");
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
  const int64_t channels = config.n_heads * config.d_value;
  const int64_t states = config.d_key;
  const int64_t rank = KeyOf<int64_t>(config, "gate_rank");
  const int64_t width = KeyOf<int64_t>(config, "conv_width");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".attention.");
    const std::string theirs = StrCat("backbone.layers.", i, ".mixer.");
    const WeightPart in =
        from(theirs + "in_proj.weight", {2 * channels, config.d_model});
    to.Add(own + "value_projection.weight", in.Rows({0, channels}));
    to.Add(own + "gate_projection.weight", in.Rows({channels, 2 * channels}));
    to.Add(own + "convolution.weight",
           from(theirs + "conv1d.weight", {channels, 1, width})
               .Reshaped({channels, width}));
    to.Add(own + "convolution.bias", from(theirs + "conv1d.bias"));
    const WeightPart x =
        from(theirs + "x_proj.weight", {rank + 2 * states, channels});
    to.Add(own + "decay_down_projection.weight", x.Rows({0, rank}));
    to.Add(own + "key_projection.weight", x.Rows({rank, rank + states}));
    to.Add(own + "query_projection.weight",
           x.Rows({rank + states, rank + 2 * states}));
    to.Add(own + "decay_up_projection.weight", from(theirs + "dt_proj.weight"));
    to.Add(own + "dt_bias", from(theirs + "dt_proj.bias"));
    to.Add(own + "A_log", from(theirs + "A_log"));
    to.Add(own + "D", from(theirs + "D"));
    to.AddLinear(from, own + "out_projection", theirs + "out_proj");
  }
}

void Mamba2Tensors(const ModelConfig& config, PublishedTensors& from,
                   ImportedTensors& to) {
  AddAround(config, from, to);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".attention.");
    AddMamba2(config, own, StrCat("backbone.layers.", i, ".mixer."), from, to);
    to.AddLinear(from, own + "norm",
                 StrCat("backbone.layers.", i, ".mixer.norm"));
  }
}

}  // namespace

// Rows of in_proj: z, x, B, C, dt. Those of the convolution: x, B, C, which are
// values, keys and queries; tarn's order is queries, keys, values.
void AddMamba2(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to) {
  const int64_t values = config.n_heads * config.d_value;
  const int64_t keys =
      std::max<int64_t>(1, KeyOf<int64_t>(config, "key_heads")) * config.d_key;
  const int64_t width = KeyOf<int64_t>(config, "conv_width");
  const WeightPart in =
      from(theirs + "in_proj.weight",
           {2 * values + 2 * keys + config.n_heads, config.d_model});
  const auto rows = [&](const char* name, int64_t first, int64_t count) {
    to.Add(own + name, in.Rows({first, first + count}));
  };
  rows("gate_projection.weight", 0, values);
  rows("value_projection.weight", values, values);
  rows("key_projection.weight", 2 * values, keys);
  rows("query_projection.weight", 2 * values + keys, keys);
  rows("decay_projection.weight", 2 * values + 2 * keys, config.n_heads);
  const int64_t all = values + 2 * keys;
  const auto turned = [&](const WeightPart& part) {
    return WeightPart::Stacked({part.Rows({values + keys, all}),
                                part.Rows({values, values + keys}),
                                part.Rows({0, values})});
  };
  to.Add(own + "convolution.weight",
         turned(from(theirs + "conv1d.weight", {all, 1, width})
                    .Reshaped({all, width})));
  to.Add(own + "convolution.bias", turned(from(theirs + "conv1d.bias", {all})));
  for (const char* name : {"A_log", "D", "dt_bias"}) {
    to.Add(own + name, from(theirs + name));
  }
  to.AddLinear(from, own + "out_projection", theirs + "out_proj");
}

std::vector<Importer> MambaImporters() {
  return {{"mamba", ReadMamba, MambaTensors, "MambaForCausalLM", PublishMamba},
          {"mamba2", ReadMamba2, Mamba2Tensors, "Mamba2ForCausalLM",
           PublishMamba2}};
}

}  // namespace tarn
