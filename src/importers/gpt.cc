// Softmax decoders with layer norms, biases and two maps with a GELU between
// them: GPT-2 with learned positions, GPT-NeoX (Pythia) with rotary ones, whose
// layers add both parts to the same rows.
#include <cmath>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// The names of the sizes.
struct GptSizes {
  const char *width, *layers, *heads;
};

ModelConfig ReadGpt(PublishedConfig& from, const GptSizes& keys) {
  ModelConfig config;
  config.attention = MixerKind("full");
  config.vocab_size = from.Integer("vocab_size", 1, kMostSize);
  config.d_model = from.Integer(keys.width, 1, kMaxWidth);
  config.n_layers = from.Integer(keys.layers, 1, kMaxLayers);
  config.n_heads = from.Integer(keys.heads, 1, kMaxHeads);
  if (config.d_model % config.n_heads != 0) {
    from.Refuse(keys.heads, StrCat("a divisor of the width ", config.d_model),
                StrCat(config.n_heads));
  }
  config.d_key = config.d_value = config.d_model / config.n_heads;
  config.norm = Norm::kPre;
  config.norm_kind = NormKind::kLayer;
  config.final_norm = true;
  config.feed_forward = FeedForwardOf("mlp");
  config.tokenizer = TokenizerKind::kBpe;
  return config;
}

void ReadActivation(PublishedConfig& from, const char* key, const char* usual,
                    ModelConfig& config) {
  const std::string word = from.Word(key, usual);
  if (word == "gelu") {
    config.activation = Activation::kGelu;
  } else if (word == "relu") {
    config.activation = Activation::kRelu;
  } else if (word == "gelu_new" || word == "gelu_fast" ||
             word == "gelu_pytorch_tanh") {
    config.activation = Activation::kGeluTanh;
  } else {
    from.Refuse(key,
                "'gelu', 'gelu_new', 'gelu_fast', 'gelu_pytorch_tanh' or "
                "'relu'",
                Quoted(word));
  }
}

ModelConfig ReadGpt2(PublishedConfig& from) {
  ModelConfig config = ReadGpt(from, {"n_embd", "n_layer", "n_head"});
  config.d_ff = from.Integer("n_inner", 1, kMostSize, 4 * config.d_model);
  config.norm_eps = from.Real("layer_norm_epsilon", 1e-5);
  config.positions = Positions::kLearned;
  config.max_positions = from.Integer("n_positions", 1, kMostSize, 1024);
  config.tied_head = from.Flag("tie_word_embeddings", true);
  ReadActivation(from, "activation_function", "gelu_new", config);
  from.Want("add_cross_attention", false);
  const bool scaled = from.Flag("scale_attn_weights", true);
  const double scale =
      scaled ? 1.0 / std::sqrt(static_cast<double>(config.d_key)) : 1.0;
  SetKey(config, "score_scale", scaled ? 0.0 : 1.0);
  if (from.Flag("scale_attn_by_inverse_layer_idx", false)) {
    for (int64_t i = 0; i < config.n_layers; ++i) {
      config.layers.push_back(
          {config.attention,
           {{"score_scale", RealText(scale / static_cast<double>(i + 1))}}});
    }
  }
  from.Ignore({"n_ctx", "resid_pdrop", "embd_pdrop", "attn_pdrop",
               "reorder_and_upcast_attn", "summary_type", "summary_use_proj",
               "summary_activation", "summary_proj_to_labels",
               "summary_first_dropout", "task_specific_params",
               "gradient_checkpointing"});
  return config;
}

ModelConfig ReadGptNeoX(PublishedConfig& from) {
  ModelConfig config = ReadGpt(
      from, {"hidden_size", "num_hidden_layers", "num_attention_heads"});
  config.d_ff = from.Integer("intermediate_size", 1, kMostSize);
  config.norm_eps = from.Real("layer_norm_eps", 1e-5);
  config.tied_head = from.Flag("tie_word_embeddings", false);
  config.parallel_residual = from.Flag("use_parallel_residual", true);
  ReadActivation(from, "hidden_act", "gelu", config);
  const bool biases = from.Flag("attention_bias", true);
  SetKey(config, "qkv_bias", biases);
  SetKey(config, "out_bias", biases);
  ReadRotary(from, config,
             {.positions = 2048,
              .part = from.Real("rotary_pct", 0.25),
              .base = from.Real("rotary_emb_base", 10000.0)});
  from.Ignore({"hidden_dropout", "classifier_dropout", "is_decoder"});
  return config;
}

const char* WordOf(Activation activation) {
  if (activation == Activation::kRelu) return "relu";
  return activation == Activation::kGeluTanh ? "gelu_new" : "gelu";
}

// Scores times one factor, or times it over the number of the layer.
void PublishScale(const ModelConfig& config, PublishedKeys& to) {
  const auto scale = [&](int64_t layer) {
    return KeyOf<double>(LayerView(config, layer), "score_scale");
  };
  const double first = scale(0);
  to["scale_attn_weights"] = first != 1.0;
  const bool usual = first == 0.0 || first == 1.0;
  to["scale_attn_by_inverse_layer_idx"] =
      config.n_layers > 1 ? scale(1) != first : !usual;
}

void PublishGpt2(const ModelConfig& config, PublishedKeys& to) {
  to["vocab_size"] = config.vocab_size;
  to["n_embd"] = config.d_model;
  to["n_layer"] = config.n_layers;
  to["n_head"] = config.n_heads;
  to["n_inner"] = config.d_ff;
  to["n_positions"] = config.max_positions;
  to["layer_norm_epsilon"] = config.norm_eps;
  to["activation_function"] = WordOf(config.activation);
  to["tie_word_embeddings"] = config.tied_head;
  PublishScale(config, to);
}

void PublishGptNeoX(const ModelConfig& config, PublishedKeys& to) {
  PublishStackSizes(config, to);
  to["num_attention_heads"] = config.n_heads;
  to["intermediate_size"] = config.d_ff;
  to["layer_norm_eps"] = config.norm_eps;
  to["use_parallel_residual"] = config.parallel_residual;
  to["hidden_act"] = WordOf(config.activation);
  to["attention_bias"] = KeyOf<bool>(config, "qkv_bias");
  PublishPartialRotary(config, to);
}

void AddNorm(PublishedTensors& from, const std::string& own,
             const std::string& theirs, ImportedTensors& to) {
  to.AddLinear(from, own, theirs, /*bias=*/true);
}

// Queries, keys and values of `groups` groups of heads in one tensor, and of
// their biases.
void AddPacked(const ModelConfig& view, const std::string& own,
               const WeightPart& rows, bool bias, int64_t groups,
               ImportedTensors& to) {
  const int64_t height = view.n_heads / groups * view.d_key;
  const GroupedRows parts(rows, groups, {height, height, height});
  constexpr const char* kNames[] = {"query", "key", "value"};
  for (size_t i = 0; i < 3; ++i) {
    to.Add(StrCat(own, "attention.", kNames[i], "_projection.",
                  bias ? "bias" : "weight"),
           parts[i]);
  }
}

// GPT-2 stores matrices [in, out].
void Gpt2Tensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  const std::string root = from.Has("wte.weight") ? "" : "transformer.";
  const int64_t d_model = config.d_model;
  const auto add = [&](const std::string& own, const std::string& theirs,
                       int64_t in, int64_t out) {
    to.Add(own + ".weight", from(theirs + ".weight", {in, out}).Transposed());
    to.Add(own + ".bias", from(theirs + ".bias"));
  };
  to.Add("value_embedding.weight", from(root + "wte.weight"));
  to.Add("pos_embedding.weight", from(root + "wpe.weight"));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat(root, "h.", i, ".");
    from.Skip(theirs + "attn.bias");  // the mask of older files
    from.Skip(theirs + "attn.masked_bias");
    const std::string packed = theirs + "attn.c_attn.";
    AddPacked(view, own,
              from(packed + "weight", {d_model, 3 * d_model}).Transposed(),
              /*bias=*/false, 1, to);
    AddPacked(view, own, from(packed + "bias", {3 * d_model}),
              /*bias=*/true, 1, to);
    add(own + "attention.out_projection", theirs + "attn.c_proj", d_model,
        d_model);
    add(own + "linear1", theirs + "mlp.c_fc", d_model, config.d_ff);
    add(own + "linear2", theirs + "mlp.c_proj", config.d_ff, d_model);
    AddNorm(from, own + "norm1", theirs + "ln_1", to);
    AddNorm(from, own + "norm2", theirs + "ln_2", to);
  }
  AddNorm(from, "norm", root + "ln_f", to);
  to.AddHead(from, "lm_head.weight", root + "wte.weight");
}

// GPT-NeoX stores queries, keys and values of one head after the other.
void GptNeoXTensors(const ModelConfig& config, PublishedTensors& from,
                    ImportedTensors& to) {
  const std::string root = "gpt_neox.", embedding = root + "embed_in.weight";
  const bool biases = KeyOf<bool>(config, "qkv_bias");
  const int64_t d_model = config.d_model;
  to.Add("value_embedding.weight", from(embedding));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string own = StrCat("layers.", i, ".");
    const std::string theirs = StrCat(root, "layers.", i, ".");
    for (const char* old : {"bias", "masked_bias", "rotary_emb.inv_freq"}) {
      from.Skip(StrCat(theirs, "attention.", old));
    }
    const std::string packed = theirs + "attention.query_key_value.";
    AddPacked(config, own, from(packed + "weight", {3 * d_model, d_model}),
              /*bias=*/false, config.n_heads, to);
    if (biases) {
      AddPacked(config, own, from(packed + "bias", {3 * d_model}),
                /*bias=*/true, config.n_heads, to);
    }
    to.AddLinear(from, own + "attention.out_projection",
                 theirs + "attention.dense", biases);
    to.AddLinear(from, own + "linear1", theirs + "mlp.dense_h_to_4h", true);
    to.AddLinear(from, own + "linear2", theirs + "mlp.dense_4h_to_h", true);
    AddNorm(from, own + "norm1", theirs + "input_layernorm", to);
    AddNorm(from, own + "norm2", theirs + "post_attention_layernorm", to);
  }
  AddNorm(from, "norm", root + "final_layer_norm", to);
  const char* const other = "lm_head.weight";
  to.AddHead(from, from.Has(other) ? other : "embed_out.weight", embedding);
}

}  // namespace

std::vector<Importer> GptImporters() {
  return {{"gpt_neox", ReadGptNeoX, GptNeoXTensors, "GPTNeoXForCausalLM",
           PublishGptNeoX},
          {"gpt2", ReadGpt2, Gpt2Tensors, "GPT2LMHeadModel", PublishGpt2}};
}

}  // namespace tarn
