// Granite 4's hybrids: layers of Mamba-2 or of softmax attention, each followed
// by a gated feed-forward part, which a mixture of experts may join.
#include <algorithm>

#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostGranite = int64_t{1} << 24;

void ReadLayers(PublishedConfig& from, ModelConfig& config) {
  const int64_t inner = from.Integer("mamba_expand", 1, 64, 2) * config.d_model;
  const LayerOptions mamba = ReadMamba2(from, inner, config);
  const int64_t shared =
      from.Integer("num_key_value_heads", 1, kMostGranite, config.n_heads);
  const LayerOptions softmax = {
      {"key_heads", StrCat(shared == config.n_heads ? 0 : shared)}};
  std::vector<std::string> types = from.Words("layer_types", config.n_layers);
  if (types.empty()) {
    types.assign(static_cast<size_t>(config.n_layers), "mamba");
  }
  for (const std::string& type : types) {
    const bool recurrent = type == "mamba" || type == "linear_attention";
    if (!recurrent && type != "attention" && type != "full_attention") {
      from.Refuse("layer_types", "'mamba' or 'attention'", Quoted(type));
    }
    config.layers.push_back({MixerKind(recurrent ? "mamba2" : "full"),
                             recurrent ? mamba : softmax});
  }
}

void ReadParts(PublishedConfig& from, ModelConfig& config) {
  config.d_ff = from.Integer("shared_intermediate_size", 1, kMostGranite);
  const int64_t experts = from.Integer("num_local_experts", 0, 1 << 16, 8);
  // Dense models have 0 of both.
  const int64_t chosen =
      from.Integer("num_experts_per_tok", experts == 0 ? 0 : 1, 1 << 16, 2);
  const int64_t width =
      from.Integer("intermediate_size", 1, kMostGranite, 1024);
  config.feed_forward = FeedForwardOf(experts == 0 ? "swiglu" : "moe");
  if (experts == 0) return;
  SetKey(config, "experts", experts);
  SetKey(config, "experts_per_token", std::min(chosen, experts));
  SetKey(config, "d_expert", width);
  SetKey(config, "d_shared", config.d_ff);
  SetKey(config, "router_normalize", true);
}

ModelConfig ReadGraniteHybrid(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostGranite);
  config.d_model = from.Integer("hidden_size", 1, kMostGranite);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMostGranite);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostGranite);
  config.d_key = config.d_value = config.d_model / config.n_heads;
  SetKey(config, "qkv_bias", from.Flag("attention_bias", false));
  SetKey(config, "out_bias", from.Flag("attention_bias", false));
  SetKey(config, "score_scale", from.Real("attention_multiplier", 1.0));
  config.embedding_factor = from.Real("embedding_multiplier", 1.0);
  config.residual_factor = from.Real("residual_multiplier", 1.0);
  config.logit_factor = 1.0 / from.Real("logits_scaling", 1.0);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-6);
  config.final_norm = true;
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  const std::string places = from.Word("position_embedding_type", "nope");
  if (places != "nope" && places != "rope") {
    from.Refuse("position_embedding_type", "'rope', 'nope' or null",
                Quoted(places));
  }
  config.positions = Positions::kNone;
  if (places == "rope") {
    ReadRotary(from, config, {.positions = 2048});
  } else {
    from.Ignore({"rope_parameters", "rope_theta", "rope_scaling"});
  }
  from.Want("hidden_act", "silu");
  from.Ignore({"output_router_logits", "router_aux_loss_coef"});
  ReadLayers(from, config);
  ReadParts(from, config);
  return config;
}

void PublishGranite(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  const ModelConfig mamba = FirstView(config, "mamba2");
  PublishStackSizes(config, to);
  PublishLayerWords(config, "layer_types",
                    {{"mamba2", "mamba"}, {"full", "attention"}}, to);
  PublishHeads(softmax, to);
  to.erase("head_dim");  // follows from the others
  to["attention_multiplier"] = KeyOf<double>(softmax, "score_scale");
  PublishMamba2Keys(mamba, config.d_model, to);
  to["embedding_multiplier"] = config.embedding_factor;
  to["residual_multiplier"] = config.residual_factor;
  to["logits_scaling"] = 1.0 / config.logit_factor;
  to["rms_norm_eps"] = config.norm_eps;
  to["hidden_act"] = "silu";
  to["shared_intermediate_size"] = config.d_ff;
  to["num_local_experts"] = 0;
  if (config.feed_forward == FeedForwardOf("moe")) {
    to["num_local_experts"] = KeyOf<int64_t>(config, "experts");
    to["num_experts_per_tok"] = KeyOf<int64_t>(config, "experts_per_token");
    to["intermediate_size"] = KeyOf<int64_t>(config, "d_expert");
    to["shared_intermediate_size"] = KeyOf<int64_t>(config, "d_shared");
  }
  const bool rotary = config.positions == Positions::kRotary;
  to["position_embedding_type"] = rotary ? "rope" : "nope";
  if (rotary) PublishRotary(config, to);
}

// The first or second `width` rows of each expert's matrix in a tensor
// [experts, 2 width, columns].
WeightPart Halves(const WeightPart& part, int64_t half) {
  const int64_t experts = part.shape()[0], columns = part.shape()[2];
  const int64_t width = part.shape()[1] / 2;
  const WeightPart rows = part.Reshaped({experts * 2 * width, columns});
  std::vector<WeightPart> own;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t first = (2 * e + half) * width;
    own.push_back(rows.Rows({first, first + width}));
  }
  return WeightPart::Stacked(own).Reshaped({experts, width, columns});
}

void AddGraniteParts(const ModelConfig& view, const std::string& own,
                     const std::string& theirs, PublishedTensors& from,
                     ImportedTensors& to) {
  const int64_t width = view.d_ff;
  const WeightPart in = from(theirs + "shared_mlp.input_linear.weight",
                             {2 * width, view.d_model});
  const WeightPart out = from(theirs + "shared_mlp.output_linear.weight");
  const bool mixed = view.feed_forward == FeedForwardOf("moe");
  const std::string shared = mixed ? own + "shared." : own;
  to.Add(shared + "linear1.weight", in.Rows({0, width}));
  to.Add(shared + "linear3.weight", in.Rows({width, 2 * width}));
  to.Add(shared + "linear2.weight", out);
  if (!mixed) return;
  const std::string experts = theirs + "block_sparse_moe.";
  to.Add(own + "router.weight", from(experts + "router.layer.weight"));
  const WeightPart both =
      from(experts + "input_linear.weight",
           {KeyOf<int64_t>(view, "experts"),
            2 * KeyOf<int64_t>(view, "d_expert"), view.d_model});
  to.Add(own + "experts.linear1", Halves(both, 0));
  to.Add(own + "experts.linear3", Halves(both, 1));
  to.Add(own + "experts.linear2", from(experts + "output_linear.weight"));
}

void AddGraniteMixer(const ModelConfig& view, const std::string& own,
                     const std::string& theirs, PublishedTensors& from,
                     ImportedTensors& to) {
  if (view.attention == MixerKind("mamba2")) {
    AddMamba2(view, own + "attention.", theirs + "mamba.", from, to);
  } else {
    AddSoftmax(view, own + "attention.", theirs + "self_attn.", from, to);
  }
}

void GraniteTensors(const ModelConfig& config, PublishedTensors& from,
                    ImportedTensors& to) {
  AddSoftmaxStack(config, {.mixer = AddGraniteMixer, .unit = AddGraniteParts},
                  from, to);
}

}  // namespace

std::vector<Importer> GraniteImporters() {
  return {{"granitemoehybrid", ReadGraniteHybrid, GraniteTensors,
           "GraniteMoeHybridForCausalLM", PublishGranite}};
}

}  // namespace tarn
