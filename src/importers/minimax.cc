// MiniMax-Text-01 (arXiv 2501.08313): lightning attention and softmax
// attention, each before a mixture of experts. With m the mixer, f the mixture
// and their factors, a layer computes, from rows x:
//   y = norm(x), x = a y + b m(y)    two of them, the second with f
// where tarn's form is x = norm(x + f(x)). So the first norm of the model comes
// before its first layer, each layer closes with the norms that follow in the
// file, and factors go into weights: a into those of the norm before, 1 / a
// into what reads its rows, b into what the part writes.
#include <cmath>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostMinimax = int64_t{1} << 24;
constexpr double kLightningNormEps = 1e-6;  // not the file's
constexpr double kMostFactor = 1e6;

/// a and b of a part.
struct SumFactors {
  float rows, part;
};

SumFactors ReadFactors(PublishedConfig& from, const std::string& part) {
  const auto factor = [&](const char* name) {
    const std::string key = StrCat(part, name);
    const double value = from.Real(key.c_str(), 1.0);
    const double size = std::abs(value);
    if (!(size >= 1 / kMostFactor && size <= kMostFactor)) {
      from.Refuse(
          key.c_str(),
          StrCat("a factor of size ", 1 / kMostFactor, " to ", kMostFactor),
          StrCat(value));
    }
    return static_cast<float>(value);
  };
  const float rows = factor("_alpha_factor");
  return {rows, factor("_beta_factor")};
}

struct MinimaxFactors {
  explicit MinimaxFactors(PublishedConfig& from)
      : full(ReadFactors(from, "full_attn")),
        lightning(ReadFactors(from, "linear_attn")),
        mixture(ReadFactors(from, "mlp")) {}

  SumFactors mixer(const ModelConfig& config, int64_t layer) const {
    return LayerView(config, layer).attention == MixerKind("full") ? full
                                                                   : lightning;
  }
  const SumFactors full, lightning, mixture;
};

ModelConfig ReadMinimax(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostMinimax);
  config.d_model = from.Integer("hidden_size", 1, kMostMinimax);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostMinimax);
  config.d_key = config.d_value = from.Integer("head_dim", 1, kMostMinimax,
                                               config.d_model / config.n_heads);
  config.norm = Norm::kPost;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-5);
  config.input_norm = true;
  config.final_norm = false;
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  ReadRotary(from, config, {.positions = 131072, .base = 1e6});
  ReadHybridLayers(from, config, "lightning",
                   [](int64_t i) { return i % 2 == 0; });
  const int64_t shared =
      from.Integer("num_key_value_heads", 1, kMostMinimax, config.n_heads);
  for (LayerConfig& layer : config.layers) {
    if (layer.attention != MixerKind("full")) continue;
    layer.options = {{"key_heads", StrCat(shared)}};
  }
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  SetKey(config, "window", from.Integer("sliding_window", 0, kMostMinimax, 0));
  SetKey(config, "output_norm_eps", kLightningNormEps);
  config.feed_forward = FeedForwardOf("moe");
  const int64_t width =
      from.Integer("intermediate_size", 1, kMostMinimax, 14336);
  config.d_ff = width;
  SetKey(config, "d_expert", width);
  SetKey(config, "experts", from.Integer("num_local_experts", 1, 4096, 8));
  SetKey(config, "experts_per_token",
         from.Integer("num_experts_per_tok", 1, 256, 2));
  const MinimaxFactors checked(from);
  from.Ignore({"block_size", "output_router_logits", "router_aux_loss_coef",
               "router_jitter_noise"});
  return config;
}

// Factors are 1: those that were read are in the weights.
void PublishMinimax(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  PublishSoftmaxStack(config, to);
  to.erase("attention_bias");
  PublishRotary(config, to);
  PublishLayerWords(
      config, "layer_types",
      {{"lightning", "linear_attention"}, {"full", "full_attention"}}, to);
  const int64_t window = KeyOf<int64_t>(softmax, "window");
  to["sliding_window"] =
      window == 0 ? nlohmann::json(nullptr) : nlohmann::json(window);
  to["num_local_experts"] = KeyOf<int64_t>(config, "experts");
  to["num_experts_per_tok"] = KeyOf<int64_t>(config, "experts_per_token");
  for (const char* part : {"full_attn", "linear_attn", "mlp"}) {
    to[StrCat(part, "_alpha_factor")] = to[StrCat(part, "_beta_factor")] = 1;
  }
}

// -log of the decays, of which the file holds a copy where transformers wrote
// it: head h of H in layer l of L has 2^(-8 (h + 1) / H) (1 - l / (L - 1)).
WeightPart LogDecay(const ModelConfig& config, const std::string& theirs,
                    int64_t layer, PublishedTensors& from) {
  const int64_t heads = config.n_heads;
  const std::string name = theirs + "slope_rate";
  for (const char* derived : {"query_decay", "key_decay", "diagonal_decay"}) {
    from.Skip(theirs + derived);
  }
  if (from.Has(name)) {
    return from(name, {heads, 1, 1}).Reshaped({heads}).Scaled(-1);
  }
  const double last = static_cast<double>(config.n_layers - 1) + 1e-5;
  const double factor = 1 - static_cast<double>(layer) / last + 1e-5;
  std::vector<WeightPart> decays;
  for (int64_t h = 0; h < heads; ++h) {
    const double rate = std::exp2(-8.0 * static_cast<double>(h + 1) /
                                  static_cast<double>(heads));
    decays.push_back(
        WeightPart::Filled({1}, static_cast<float>(-rate * factor)));
  }
  return WeightPart::Stacked(decays);
}

void AddLightning(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, const SumFactors& factors,
                  PublishedTensors& from, ImportedTensors& to) {
  const float in = 1 / factors.rows;
  const GroupedRows rows(from, theirs + "qkv_proj.weight", view.n_heads,
                         {view.d_key, view.d_key, view.d_value}, view.d_model);
  to.Add(own + "query_projection.weight", Times(rows[0], in));
  to.Add(own + "key_projection.weight", Times(rows[1], in));
  to.Add(own + "value_projection.weight", Times(rows[2], in));
  to.Add(own + "gate_projection.weight",
         Times(from(theirs + "output_gate.weight"), in));
  to.AddLinear(from, own + "norm", theirs + "norm");
  to.Add(own + "out_projection.weight",
         Times(from(theirs + "out_proj.weight"), factors.part));
}

void AddMinimaxSoftmax(const std::string& own, const std::string& theirs,
                       const SumFactors& factors, PublishedTensors& from,
                       ImportedTensors& to) {
  const auto add = [&](const char* mine, const char* name, float factor) {
    to.Add(own + mine, Times(from(theirs + name), factor));
  };
  add("query_projection.weight", "q_proj.weight", 1 / factors.rows);
  add("key_projection.weight", "k_proj.weight", 1 / factors.rows);
  add("value_projection.weight", "v_proj.weight", 1 / factors.rows);
  add("out_projection.weight", "o_proj.weight", factors.part);
}

void MinimaxTensors(const ModelConfig& config, PublishedTensors& from,
                    ImportedTensors& to) {
  constexpr GatedUnitNames kNames = {"w1", "w3", "w2"};
  const MinimaxFactors factors(from.config());
  const auto norm = [&](const std::string& name, float factor) {
    return Times(from(name + ".weight"), factor);
  };
  const auto first = [&](int64_t layer) {
    return norm(StrCat("model.layers.", layer, ".input_layernorm"),
                factors.mixer(config, layer).rows);
  };
  to.Add("value_embedding.weight", from("model.embed_tokens.weight"));
  to.Add("input_norm.weight", first(0));
  const float mixture_in = 1 / factors.mixture.rows;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat("model.layers.", i, ".");
    if (view.attention == MixerKind("full")) {
      AddMinimaxSoftmax(own + "attention.", theirs + "self_attn.", factors.full,
                        from, to);
    } else {
      AddLightning(view, own + "attention.", theirs + "self_attn.",
                   factors.lightning, from, to);
      to.Add(own + "attention.log_decay",
             LogDecay(view, theirs + "self_attn.", i, from));
    }
    const std::string sparse = theirs + "block_sparse_moe.";
    const std::string other = theirs + "mlp.";
    const std::string mixture =
        from.Has(other + "gate.weight") ? other : sparse;
    to.Add(own + "router.weight",
           Times(from(mixture + "gate.weight"), mixture_in));
    AddExperts(view, own, mixture + "experts.", kNames, from, to, mixture_in,
               factors.mixture.part);
    to.Add(own + "norm1.weight",
           norm(theirs + "post_attention_layernorm", factors.mixture.rows));
    to.Add(own + "norm2.weight",
           i + 1 < config.n_layers ? first(i + 1) : norm("model.norm", 1.0f));
  }
  to.AddHead(from, "lm_head.weight", "model.embed_tokens.weight");
}

}  // namespace

std::vector<Importer> MinimaxImporters() {
  return {{"minimax", ReadMinimax, MinimaxTensors, "MiniMaxForCausalLM",
           PublishMinimax}};
}

}  // namespace tarn
