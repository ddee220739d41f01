// Kimi Linear (arXiv 2510.26692): three layers of KDA to one of latent
// attention without positions, each before a mixture of experts, whose router
// is DeepSeek-V3's.
#include <algorithm>
#include <set>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostKimi = int64_t{1} << 24;
constexpr double kLatentNormEps = 1e-6;  // not the file's

// The name of a key, which published files and transformers write differently.
const char* Either(const PublishedConfig& from, const char* published,
                   const char* other) {
  return from.Has(published) || !from.Has(other) ? published : other;
}

// The layers of softmax attention, counted from 1 in the published form.
std::set<int64_t> FullLayers(PublishedConfig& linear, int64_t layers) {
  const auto read = [&](const char* key) {
    const std::vector<int64_t> list = linear.Integers(key, 1, layers);
    return std::set<int64_t>(list.begin(), list.end());
  };
  const std::set<int64_t> full = read("full_attn_layers");
  std::set<int64_t> all = read("kda_layers");
  const size_t listed = full.size() + all.size();
  all.insert(full.begin(), full.end());
  const size_t count = static_cast<size_t>(layers);
  if (listed != count || all.size() != count) {
    linear.Refuse(
        "kda_layers",
        StrCat("each of ", layers, " layers once, here or in full_attn_layers"),
        StrCat(listed, " of ", all.size(), " layers"));
  }
  return full;
}

void ReadKimiMixers(PublishedConfig& from, ModelConfig& config) {
  PublishedConfig linear = from.Section("linear_attn_config");
  const bool listed =
      linear.Has("full_attn_layers") && linear.Has("kda_layers");
  const std::set<int64_t> full =
      listed ? FullLayers(linear, config.n_layers) : std::set<int64_t>();
  ReadHybridLayers(from, config, "kda", [&](int64_t i) {
    return listed ? full.contains(i + 1) : i > 0 && i % 4 == 0;
  });
  const auto size = [&](const char* key, const char* inner, int64_t value) {
    const int64_t given = from.Integer(key, 1, kMostKimi, value);
    return linear.Integer(inner, 1, kMostKimi, given);
  };
  const std::string heads = StrCat(size("linear_num_heads", "num_heads", 32));
  const std::string width = StrCat(size("linear_head_dim", "head_dim", 128));
  for (LayerConfig& layer : config.layers) {
    if (layer.attention != MixerKind("kda")) continue;
    layer.options = {{"n_heads", heads}, {"d_key", width}, {"d_value", width}};
  }
  const int64_t conv =
      size("linear_conv_kernel_dim", "short_conv_kernel_size", 4);
  if (conv < 2 || conv > 8) {
    from.Refuse("linear_conv_kernel_dim", "2 to 8", StrCat(conv));
  }
  SetKey(config, "conv_width", conv);
  linear.RequireAllRead();
}

// Latent attention, by the keys of DeepSeek-V2.
void ReadLatent(PublishedConfig& from, ModelConfig& config) {
  const int64_t shared = from.Integer("qk_rope_head_dim", 0, kMostKimi, 64);
  config.d_key = from.Integer("qk_nope_head_dim", 1, kMostKimi, 128) + shared;
  config.d_value = from.Integer("v_head_dim", 1, kMostKimi, 128);
  const int64_t key_heads =
      from.Integer("num_key_value_heads", 1, kMostKimi, config.n_heads);
  if (key_heads != config.n_heads) {
    from.Refuse("num_key_value_heads",
                StrCat("num_attention_heads = ", config.n_heads),
                StrCat(key_heads));
  }
  from.Want("attention_bias", false);
  from.Want("mla_use_nope", true);
  SetKey(config, "latent_width",
         from.Integer("kv_lora_rank", 1, kMostKimi, 512));
  SetKey(config, "query_latent_width",
         from.Integer("q_lora_rank", 1, kMostKimi, 0));
  SetKey(config, "shared_key_width", shared);
  SetKey(config, "qkv_bias", false);
  SetKey(config, "out_bias", false);
  SetKey(config, "head_norm_eps", kLatentNormEps);
}

void ReadKimiExperts(PublishedConfig& from, ModelConfig& config) {
  const int64_t width =
      from.Integer("moe_intermediate_size", 1, kMostKimi, 1024);
  config.feed_forward = FeedForwardOf("moe");
  SetKey(config, "experts",
         from.Integer(Either(from, "num_experts", "num_local_experts"), 1, 4096,
                      256));
  SetKey(
      config, "experts_per_token",
      from.Integer(Either(from, "num_experts_per_token", "num_experts_per_tok"),
                   1, 256, 8));
  SetKey(config, "d_expert", width);
  SetKey(config, "d_shared",
         width * from.Integer(
                     Either(from, "num_shared_experts", "n_shared_experts"), 1,
                     1 << 10, 1));
  from.Want("moe_router_activation_func", "sigmoid");
  config.own.insert_or_assign("router", int64_t{2});  // biased-sigmoid
  SetKey(config, "router_normalize",
         from.Flag(Either(from, "moe_renormalize", "norm_topk_prob"), true));
  SetKey(config, "router_scale", from.Real("routed_scaling_factor", 2.446));
  // Groups of experts, of which a token would choose some first.
  for (const char* key :
       {Either(from, "num_expert_group", "n_group"), "topk_group"}) {
    if (from.Integer(key, 1, kMostKimi, 1) != 1) from.Refuse(key, "1", "more");
  }
  if (from.Integer("moe_layer_freq", 1, kMostKimi, 1) != 1) {
    from.Refuse("moe_layer_freq", "1", "more");
  }
  const std::vector<std::string> types =
      from.Words("mlp_layer_types", config.n_layers);
  const int64_t dense = from.Integer("first_k_dense_replace", 0, kMostKimi, 1);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string type = types.empty() ? i < dense ? "dense" : "sparse"
                                           : types[static_cast<size_t>(i)];
    if (type == "sparse") continue;
    if (type != "dense") {
      from.Refuse("mlp_layer_types", "'dense' or 'sparse'", Quoted(type));
    }
    config.layers[static_cast<size_t>(i)].options.push_back(
        {"feed_forward", "swiglu"});
  }
}

ModelConfig ReadKimiLinear(PublishedConfig& from) {
  ModelConfig config;
  config.vocab_size = from.Integer("vocab_size", 1, kMostKimi);
  config.d_model = from.Integer("hidden_size", 1, kMostKimi);
  config.n_layers = from.Integer("num_hidden_layers", 1, kMaxLayers);
  config.n_heads = from.Integer("num_attention_heads", 1, kMostKimi);
  config.d_ff = from.Integer("intermediate_size", 1, kMostKimi, 9216);
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kRms;
  config.norm_eps = from.Real("rms_norm_eps", 1e-5);
  config.final_norm = true;
  config.positions = Positions::kNone;
  config.tokenizer = TokenizerKind::kBpe;
  from.Want("hidden_act", "silu");
  // Widths that follow from others, and what the classes do not read.
  from.Ignore({"tie_word_embeddings", "head_dim", "qk_head_dim",
               "model_max_length", "rope_theta", "rope_scaling",
               "rope_parameters", "use_grouped_topk",
               "num_nextn_predict_layers", "output_router_logits"});
  ReadLatent(from, config);
  ReadKimiMixers(from, config);
  ReadKimiExperts(from, config);
  return config;
}

void PublishKimiLinear(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  const ModelConfig kda = FirstView(config, "kda");
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  PublishSoftmaxStack(config, to);
  to.erase("attention_bias");
  to.erase("head_dim");
  to["num_key_value_heads"] = softmax.n_heads;
  const int64_t shared = KeyOf<int64_t>(softmax, "shared_key_width");
  to["qk_rope_head_dim"] = shared;
  to["qk_nope_head_dim"] = softmax.d_key - shared;
  to["v_head_dim"] = softmax.d_value;
  to["kv_lora_rank"] = KeyOf<int64_t>(softmax, "latent_width");
  const int64_t rank = KeyOf<int64_t>(softmax, "query_latent_width");
  to["q_lora_rank"] = rank > 0 ? nlohmann::json(rank) : nlohmann::json(nullptr);
  PublishLayerWords(config, "layer_types",
                    {{"kda", "linear_attention"}, {"full", "full_attention"}},
                    to);
  to["linear_num_heads"] = kda.n_heads;
  to["linear_head_dim"] = kda.d_key;
  to["linear_conv_kernel_dim"] = KeyOf<int64_t>(kda, "conv_width");
  PublishChoice(mixed, to);
  to["num_local_experts"] = KeyOf<int64_t>(mixed, "experts");
  to["n_shared_experts"] =
      KeyOf<int64_t>(mixed, "d_shared") /
      std::max<int64_t>(1, KeyOf<int64_t>(mixed, "d_expert"));
  to["routed_scaling_factor"] = KeyOf<double>(mixed, "router_scale");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    to["mlp_layer_types"].push_back(HasPart(config, i, "moe") ? "sparse"
                                                              : "dense");
  }
}

void AddKda(const ModelConfig& view, const std::string& own,
            const std::string& theirs, PublishedTensors& from,
            ImportedTensors& to) {
  constexpr const char* kMaps[][2] = {{"query_projection", "q_proj"},
                                      {"key_projection", "k_proj"},
                                      {"value_projection", "v_proj"},
                                      {"gate_down_projection", "g_a_proj"},
                                      {"gate_up_projection", "g_b_proj"},
                                      {"decay_down_projection", "f_a_proj"},
                                      {"decay_up_projection", "f_b_proj"},
                                      {"beta_projection", "b_proj"},
                                      {"norm", "o_norm"},
                                      {"out_projection", "o_proj"}};
  for (const auto& [mine, name] : kMaps) {
    to.AddLinear(from, own + mine, theirs + name);
  }
  const int64_t heads = view.n_heads;
  to.Add(own + "convolution.weight", KernelsOf(view, theirs, from));
  to.Add(own + "A_log",
         from(theirs + "A_log", {1, 1, heads, 1}).Reshaped({heads}));
  to.Add(own + "dt_bias", from(theirs + "dt_bias"));
}

void AddLatent(const ModelConfig& view, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to) {
  const int64_t shared = KeyOf<int64_t>(view, "shared_key_width");
  if (KeyOf<int64_t>(view, "query_latent_width") > 0) {
    to.AddLinear(from, own + "query_down_projection", theirs + "q_a_proj");
    to.AddLinear(from, own + "query_down_norm", theirs + "q_a_layernorm");
    to.AddLinear(from, own + "query_projection", theirs + "q_b_proj");
  } else {
    to.AddLinear(from, own + "query_projection", theirs + "q_proj");
  }
  to.AddLinear(from, own + "latent_projection", theirs + "kv_a_proj_with_mqa");
  to.AddLinear(from, own + "latent_norm", theirs + "kv_a_layernorm");
  const GroupedRows both(from, theirs + "kv_b_proj.weight", view.n_heads,
                         {view.d_key - shared, view.d_value},
                         KeyOf<int64_t>(view, "latent_width"));
  to.Add(own + "key_projection.weight", both[0]);
  to.Add(own + "value_projection.weight", both[1]);
  to.AddLinear(from, own + "out_projection", theirs + "o_proj");
}

// The published files have experts under another name than gated units;
// transformers gives both that name where it writes them.
void AddKimiParts(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  constexpr GatedUnitNames kExpertNames = {"w1", "w3", "w2"};
  const std::string sparse = theirs + "block_sparse_moe.";
  const bool mixed = view.feed_forward == FeedForwardOf("moe");
  const char* first = mixed ? "gate.weight" : "gate_proj.weight";
  const std::string other = theirs + "mlp.";
  const std::string root = from.Has(other + first) ? other : sparse;
  if (!mixed) {
    AddGatedUnit(own, root, kProjNames, from, to);
    return;
  }
  to.AddLinear(from, own + "router", root + "gate");
  to.Add(own + "router_bias", from(root + "gate.e_score_correction_bias"));
  AddExperts(view, own, root + "experts.", kExpertNames, from, to);
  AddGatedUnit(own + "shared.", root + "shared_experts.", kProjNames, from, to);
}

void AddKimiMixer(const ModelConfig& view, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to) {
  const auto add = view.attention == MixerKind("kda") ? AddKda : AddLatent;
  add(view, own + "attention.", theirs + "self_attn.", from, to);
}

void KimiTensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  AddSoftmaxStack(config, {.mixer = AddKimiMixer, .unit = AddKimiParts}, from,
                  to);
}

}  // namespace

std::vector<Importer> KimiImporters() {
  return {{"kimi_linear", ReadKimiLinear, KimiTensors, "KimiLinearForCausalLM",
           PublishKimiLinear}};
}

}  // namespace tarn
