// LFM2 and its mixtures of experts: gated short convolutions, and softmax
// attention with norms of queries and keys in some layers.
#include <algorithm>
#include <cmath>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostLfm = int64_t{1} << 24;

// The list of types, or the numbers of the layers with softmax; without both
// all have it.
void ReadLfmLayers(PublishedConfig& from, ModelConfig& config) {
  const std::vector<int64_t> places =
      from.Integers("full_attn_idxs", 0, kMostLfm);
  const bool listed = from.Has("full_attn_idxs");
  std::vector<std::string> types = from.Words("layer_types", config.n_layers);
  for (int64_t i = 0; types.empty() && i < config.n_layers; ++i) {
    const bool full =
        !listed || std::find(places.begin(), places.end(), i) != places.end();
    config.layers.push_back({MixerKind(full ? "full" : "short-conv"), {}});
  }
  for (const std::string& type : types) {
    if (type != "conv" && type != "full_attention") {
      from.Refuse("layer_types", "'conv' or 'full_attention'", Quoted(type));
    }
    config.layers.push_back(
        {MixerKind(type == "conv" ? "short-conv" : "full"), {}});
  }
  const int64_t shared = from.Integer("num_key_value_heads", 1, kMostLfm, 8);
  for (LayerConfig& layer : config.layers) {
    if (layer.attention == MixerKind("full")) {
      layer.options = {{"key_heads", StrCat(shared)}};
    } else {  // as wide as the model, whatever the heads of attention
      layer.options = {{"n_heads", "1"}, {"d_value", StrCat(config.d_model)}};
    }
  }
}

ModelConfig ReadLfmStack(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostLfm, 65536);
  config.d_model = from.Integer("hidden_size", 1, kMostLfm);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostLfm);
  const int64_t width = config.d_model / config.n_heads;
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMostLfm, width);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("norm_eps", 1e-5);
  config.final_norm = true;
  const bool tied = from.Flag("tie_word_embeddings", true);
  config.tied_head = from.Flag("tie_embedding", tied);  // of earlier files
  config.tokenizer = TokenizerKind::kBpe;
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  SetKey(config, "conv_width", from.Integer("conv_L_cache", 2, 8, 3));
  SetKey(config, "conv_bias", from.Flag("conv_bias", false));
  ReadRotary(from, config, {.positions = 128000, .base = 1e6});
  ReadLfmLayers(from, config);
  const auto rotated = [](const LayerConfig& layer) {
    return layer.attention == MixerKind("full");
  };
  if (std::none_of(config.layers.begin(), config.layers.end(), rotated)) {
    config.positions = Positions::kNone;
  }
  // Of the authors' code alone: transformers reads none of them.
  from.Ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps",
               "block_out_init_scale", "block_use_swiglu",
               "block_use_xavier_init", "conv_dim", "conv_dim_out",
               "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"});
  return config;
}

// The hidden width is a part of the number in the file, rounded up to a
// multiple.
ModelConfig ReadLfm2(PublishedConfig& from) {
  ModelConfig config = ReadLfmStack(from);
  config.feed_forward = FeedForwardOf("swiglu");
  const int64_t given = from.Integer("intermediate_size", 1, kMostLfm, 12288);
  config.d_ff = from.Integer("block_ff_dim", 1, kMostLfm, given);
  const bool adjusted = from.Flag("block_auto_adjust_ff_dim", true);
  const double factor = from.Real("block_ffn_dim_multiplier", 1.0);
  const int64_t multiple = from.Integer("block_multiple_of", 1, kMostLfm, 256);
  if (!adjusted) return config;
  const double width =
      std::floor(factor * static_cast<double>(2 * config.d_ff / 3));
  if (!(width >= 1 && width <= static_cast<double>(kMostLfm))) {
    from.Refuse("block_ffn_dim_multiplier",
                StrCat("a factor that makes a width from 1 to ", kMostLfm),
                RealText(factor));
  }
  config.d_ff =
      (static_cast<int64_t>(width) + multiple - 1) / multiple * multiple;
  return config;
}

// Experts in all layers but the first ones. What a router's sum of scores has
// added to it, 1e-6, is not: a weight of an expert changes by that part.
ModelConfig ReadLfm2Moe(PublishedConfig& from) {
  ModelConfig config = ReadLfmStack(from);
  config.d_ff = from.Integer("intermediate_size", 1, kMostLfm, 7168);
  config.feed_forward = FeedForwardOf("moe");
  SetKey(config, "experts", from.Integer("num_experts", 1, 4096, 32));
  SetKey(config, "experts_per_token",
         from.Integer("num_experts_per_tok", 1, 256, 4));
  SetKey(config, "d_expert",
         from.Integer("moe_intermediate_size", 1, kMostLfm, 1792));
  const bool biased = from.Flag("use_expert_bias", true);
  config.own.insert_or_assign("router", int64_t{biased ? 2 : 1});  // of sigma
  SetKey(config, "router_normalize", from.Flag("norm_topk_prob", true));
  SetKey(config, "router_scale", from.Real("routed_scaling_factor", 1.0));
  from.Ignore({"output_router_logits"});
  const int64_t dense = from.Integer("num_dense_layers", 0, kMostLfm, 2);
  for (int64_t i = 0; i < std::min(dense, config.n_layers); ++i) {
    config.layers[static_cast<size_t>(i)].options.push_back(
        {"feed_forward", "swiglu"});
  }
  return config;
}

void PublishLfm(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig conv = FirstView(config, "short-conv");
  PublishSoftmaxStack(config, to);
  to.erase("attention_bias");
  to.erase("hidden_act");
  to.erase("rms_norm_eps");
  to["norm_eps"] = config.norm_eps;
  PublishRotary(config, to);
  PublishLayerWords(config, "layer_types",
                    {{"short-conv", "conv"}, {"full", "full_attention"}}, to);
  to["conv_L_cache"] = KeyOf<int64_t>(conv, "conv_width");
  to["conv_bias"] = KeyOf<bool>(conv, "conv_bias");
}

void PublishLfm2(const ModelConfig& config, PublishedKeys& to) {
  PublishLfm(config, to);
  to["block_auto_adjust_ff_dim"] = false;
}

void PublishLfm2Moe(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  PublishLfm(config, to);
  int64_t dense = 0;
  while (dense < config.n_layers && !HasPart(config, dense, "moe")) ++dense;
  to["num_dense_layers"] = dense;
  if (dense == config.n_layers) return;
  PublishChoice(mixed, to);
  to["num_experts"] = KeyOf<int64_t>(mixed, "experts");
  to["use_expert_bias"] = KeyOf<int64_t>(mixed, "router") == 2;
  to["routed_scaling_factor"] = KeyOf<double>(mixed, "router_scale");
}

void AddLfmSoftmax(const std::string& own, const std::string& theirs,
                   PublishedTensors& from, ImportedTensors& to) {
  to.AddLinear(from, own + "query_projection", theirs + "q_proj");
  to.AddLinear(from, own + "key_projection", theirs + "k_proj");
  to.AddLinear(from, own + "value_projection", theirs + "v_proj");
  to.AddLinear(from, own + "query_norm", theirs + "q_layernorm");
  to.AddLinear(from, own + "key_norm", theirs + "k_layernorm");
  to.AddLinear(from, own + "out_projection", theirs + "out_proj");
}

void AddLfmPart(const ModelConfig& view, const std::string& own,
                const std::string& theirs, PublishedTensors& from,
                ImportedTensors& to) {
  constexpr GatedUnitNames kNames = {"w1", "w3", "w2"};
  if (view.feed_forward != FeedForwardOf("moe")) {
    AddGatedUnit(own, theirs + "feed_forward.", kNames, from, to);
    return;
  }
  to.AddLinear(from, own + "router", theirs + "feed_forward.gate");
  if (KeyOf<int64_t>(view, "router") == 2) {
    to.Add(own + "router_bias", from(theirs + "feed_forward.expert_bias"));
  }
  AddExperts(view, own, theirs + "feed_forward.experts.", kNames, from, to);
}

void AddLfmMixer(const ModelConfig& view, const std::string& own,
                 const std::string& theirs, PublishedTensors& from,
                 ImportedTensors& to) {
  if (view.attention == MixerKind("short-conv")) {
    AddShortConv(view, own + "attention.", theirs + "conv.", from, to);
  } else {
    AddLfmSoftmax(own + "attention.", theirs + "self_attn.", from, to);
  }
}

void LfmTensors(const ModelConfig& config, PublishedTensors& from,
                ImportedTensors& to) {
  AddSoftmaxStack(config,
                  {.last_norm = "embedding_norm",
                   .norms = {{"norm1", "operator_norm"}, {"norm2", "ffn_norm"}},
                   .mixer = AddLfmMixer,
                   .unit = AddLfmPart},
                  from, to);
}

}  // namespace

// Rows of in_proj: the gates before the convolution, those after it, and what
// both multiply: keys, queries and values.
void AddShortConv(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  const int64_t n = view.n_heads * view.d_value;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  const bool biased = KeyOf<bool>(view, "conv_bias");
  for (const char* part : {".weight", ".bias"}) {
    if (part[1] == 'b' && !biased) break;
    const GroupedRows in(from, StrCat(theirs, "in_proj", part), 1, {n, n, n},
                         part[1] == 'b' ? 0 : view.d_model);
    to.Add(StrCat(own, "key_projection", part), in[0]);
    to.Add(StrCat(own, "query_projection", part), in[1]);
    to.Add(StrCat(own, "value_projection", part), in[2]);
  }
  to.Add(own + "convolution.weight",
         from(theirs + "conv.weight", {n, 1, width}).Reshaped({n, width}));
  if (biased) to.Add(own + "convolution.bias", from(theirs + "conv.bias"));
  to.AddLinear(from, own + "out_projection", theirs + "out_proj", biased);
}

std::vector<Importer> LfmImporters() {
  return {{"lfm2", ReadLfm2, LfmTensors, "Lfm2ForCausalLM", PublishLfm2},
          {"lfm2_moe", ReadLfm2Moe, LfmTensors, "Lfm2MoeForCausalLM",
           PublishLfm2Moe}};
}

}  // namespace tarn
