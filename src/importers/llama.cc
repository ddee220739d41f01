// Softmax decoders in the form of Llama: root mean square norms, grouped heads,
// rotary positions, SwiGLU. Mistral adds a window, Qwen2 biases, Qwen3 norms of
// queries and keys, OLMo 2 norms after the parts instead of before them.
// Phi-3 stores matrices as one, Qwen3's mixtures have experts.
#include <algorithm>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// positions: max_position_embeddings of the class.
ModelConfig ReadRotatedStack(PublishedConfig& from, int64_t positions) {
  ModelConfig config = ReadSoftmaxStack(from);
  from.Want("hidden_act", "silu");
  ReadRotary(from, config, {.positions = positions});
  return config;
}

ModelConfig ReadLlama(PublishedConfig& from) {
  ModelConfig config = ReadRotatedStack(from, 2048);
  ReadBiases(from, config);
  return config;
}

ModelConfig ReadMistral(PublishedConfig& from) {
  ModelConfig config = ReadRotatedStack(from, 131072);
  // null says that there is none, an absent key that it is the class's own.
  const int64_t window = from.Holds("sliding_window") ? 0 : 4096;
  SetKey(config, "window",
         from.Integer("sliding_window", 0, kMostSize, window));
  return config;
}

// Windows of the later layers, which published Qwen models do not use.
void WantFullAttention(PublishedConfig& from, const ModelConfig& config) {
  from.Want("use_sliding_window", false);
  from.Ignore({"sliding_window", "max_window_layers"});
  for (const std::string& type : from.Words("layer_types", config.n_layers)) {
    if (type == "full_attention") continue;
    from.Refuse("layer_types", "'full_attention' in all layers", Quoted(type));
  }
}

ModelConfig ReadQwen2(PublishedConfig& from) {
  ModelConfig config = ReadRotatedStack(from, 32768);
  SetKey(config, "qkv_bias", true);
  WantFullAttention(from, config);
  return config;
}

ModelConfig ReadQwen3Stack(PublishedConfig& from) {
  ModelConfig config = ReadRotatedStack(from, 32768);
  ReadBiases(from, config);
  config.own.insert_or_assign("head_norm", int64_t{1});  // of each head
  return config;
}

ModelConfig ReadQwen3(PublishedConfig& from) {
  ModelConfig config = ReadQwen3Stack(from);
  WantFullAttention(from, config);
  return config;
}

// Experts in every decoder_sparse_step-th layer but those of mlp_only_layers.
ModelConfig ReadQwen3Moe(PublishedConfig& from) {
  ModelConfig config = ReadQwen3Stack(from);
  const bool windows = from.Flag("use_sliding_window", false);
  const int64_t usual = from.Holds("sliding_window") ? 0 : 4096;
  const int64_t window = from.Integer("sliding_window", 0, kMostSize, usual);
  if (windows) SetKey(config, "window", window);
  from.Ignore(
      {"max_window_layers", "output_router_logits", "router_aux_loss_coef"});
  const char* count =
      from.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  const int64_t experts = from.Integer(count, 1, 4096, 128);
  const int64_t step = from.Integer("decoder_sparse_step", 1, kMostSize, 1);
  const std::vector<int64_t> plain =
      from.Integers("mlp_only_layers", 0, config.n_layers - 1);
  config.feed_forward = FeedForwardOf("moe");
  SetKey(config, "experts", experts);
  SetKey(config, "experts_per_token",
         from.Integer("num_experts_per_tok", 1, 256, 8));
  SetKey(config, "d_expert",
         from.Integer("moe_intermediate_size", 1, kMostSize, 768));
  SetKey(config, "router_normalize", from.Flag("norm_topk_prob", false));
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const bool mixed = (i + 1) % step == 0 &&
                       std::find(plain.begin(), plain.end(), i) == plain.end();
    LayerConfig layer = {config.attention, {}};
    if (!mixed) layer.options.push_back({"feed_forward", "swiglu"});
    config.layers.push_back(std::move(layer));
  }
  return config;
}

ModelConfig ReadPhi3(PublishedConfig& from) {
  ModelConfig config = ReadSoftmaxStack(from, {.norm_eps = 1e-5});
  from.Want("hidden_act", "silu");
  ReadRotary(from, config, {.positions = 4096, .part = 1.0});
  // What the type calls yarn or su is longrope.
  if (config.rotary_scaling != RotaryScalingKind::kNone) {
    from.Refuse("rope_parameters", "rope_type 'default'", "another");
  }
  SetKey(config, "window", from.Integer("sliding_window", 0, kMostSize, 0));
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    from.Want(key, false);
  }
  from.Ignore(
      {"original_max_position_embeddings", "embd_pdrop", "resid_pdrop"});
  return config;
}

ModelConfig ReadOlmo2(PublishedConfig& from) {
  ModelConfig config = ReadRotatedStack(from, 2048);
  config.norm_eps = from.Real("rms_norm_eps", 1e-5);
  ReadBiases(from, config);
  config.own.insert_or_assign("head_norm", int64_t{2});  // of all heads
  config.norm = Norm::kAfter;
  return config;
}

void PublishCommon(const ModelConfig& config, PublishedKeys& to) {
  PublishSoftmaxStack(config, to);
  PublishRotary(config, to);
}

void PublishLlama(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to["mlp_bias"] = config.feed_forward_bias == FeedForwardBias::kAll;
}

void PublishMistral(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to.erase("attention_bias");
  const int64_t window = KeyOf<int64_t>(config, "window");
  to["sliding_window"] =
      window == 0 ? nlohmann::json(nullptr) : nlohmann::json(window);
}

// The class of Qwen 2 takes the width of a head from the other sizes where the
// key is absent, and these types have no biases of the feed-forward part.
void PublishQwen2(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to.erase("attention_bias");
  to["use_sliding_window"] = false;
}

void PublishQwen3(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  to["use_sliding_window"] = false;
}

void PublishOlmo2(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
}

void PublishQwen3Moe(const ModelConfig& config, PublishedKeys& to) {
  PublishCommon(config, to);
  const int64_t window = KeyOf<int64_t>(config, "window");
  to["use_sliding_window"] = window > 0;
  if (window > 0) to["sliding_window"] = window;
  const ModelConfig mixed = FirstViewWithPart(config, "moe");
  to["num_experts"] = KeyOf<int64_t>(mixed, "experts");
  PublishChoice(mixed, to);
  to["decoder_sparse_step"] = 1;
  to["mlp_only_layers"] = PublishedKeys::array();
  for (int64_t i = 0; i < config.n_layers; ++i) {
    if (!HasPart(config, i, "moe")) to["mlp_only_layers"].push_back(i);
  }
}

void PublishPhi3(const ModelConfig& config, PublishedKeys& to) {
  PublishSoftmaxStack(config, to);
  PublishPartialRotary(config, to);
  const int64_t window = KeyOf<int64_t>(config, "window");
  to["sliding_window"] =
      window == 0 ? nlohmann::json(nullptr) : nlohmann::json(window);
}

void LlamaTensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddSoftmaxStack(config, {}, from, to);
}

void Olmo2Tensors(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to) {
  AddSoftmaxStack(config,
                  {.norms = {{"norm1", "post_attention_layernorm"},
                             {"norm2", "post_feedforward_layernorm"}}},
                  from, to);
}

void Phi3Tensors(const ModelConfig& config, PublishedTensors& from,
                 ImportedTensors& to) {
  const auto mixer = [](const ModelConfig& view, const std::string& own,
                        const std::string& theirs, PublishedTensors& tensors,
                        ImportedTensors& into) {
    const std::string name = theirs + "self_attn.qkv_proj.weight";
    const int64_t given = KeyOf<int64_t>(view, "key_heads");
    const int64_t keys = (given == 0 ? view.n_heads : given) * view.d_key;
    const GroupedRows parts(tensors, name, 1,
                            {view.n_heads * view.d_key, keys, keys},
                            view.d_model);
    into.Add(own + "attention.query_projection.weight", parts[0]);
    into.Add(own + "attention.key_projection.weight", parts[1]);
    into.Add(own + "attention.value_projection.weight", parts[2]);
    into.AddLinear(tensors, own + "attention.out_projection",
                   theirs + "self_attn.o_proj");
  };
  const auto unit = [](const ModelConfig& view, const std::string& own,
                       const std::string& theirs, PublishedTensors& tensors,
                       ImportedTensors& into) {
    const GroupedRows both(tensors, theirs + "mlp.gate_up_proj.weight", 1,
                           {view.d_ff, view.d_ff}, view.d_model);
    into.Add(own + "linear1.weight", both[0]);
    into.Add(own + "linear3.weight", both[1]);
    into.AddLinear(tensors, own + "linear2", theirs + "mlp.down_proj");
  };
  AddSoftmaxStack(config, {.mixer = mixer, .unit = unit}, from, to);
}

void Qwen3MoeTensors(const ModelConfig& config, PublishedTensors& from,
                     ImportedTensors& to) {
  const auto unit = [](const ModelConfig& view, const std::string& own,
                       const std::string& theirs, PublishedTensors& tensors,
                       ImportedTensors& into) {
    if (view.feed_forward == FeedForwardOf("swiglu")) {
      AddGatedUnit(own, theirs + "mlp.", kProjNames, tensors, into);
      return;
    }
    into.AddLinear(tensors, own + "router", theirs + "mlp.gate");
    AddExperts(view, own, theirs + "mlp.experts.", kProjNames, tensors, into);
  };
  AddSoftmaxStack(config, {.unit = unit}, from, to);
}

}  // namespace

std::vector<Importer> SoftmaxImporters() {
  return {{"llama", ReadLlama, LlamaTensors, "LlamaForCausalLM", PublishLlama},
          {"mistral", ReadMistral, LlamaTensors, "MistralForCausalLM",
           PublishMistral},
          {"qwen2", ReadQwen2, LlamaTensors, "Qwen2ForCausalLM", PublishQwen2},
          {"qwen3", ReadQwen3, LlamaTensors, "Qwen3ForCausalLM", PublishQwen3},
          {"olmo2", ReadOlmo2, Olmo2Tensors, "Olmo2ForCausalLM", PublishOlmo2},
          {"phi3", ReadPhi3, Phi3Tensors, "Phi3ForCausalLM", PublishPhi3},
          {"qwen3_moe", ReadQwen3Moe, Qwen3MoeTensors, "Qwen3MoeForCausalLM",
           PublishQwen3Moe}};
}

}  // namespace tarn
