// `granitehybrid`, dense and with experts: conversion/granite.py and
// src/models/granite-hybrid.cpp of llama.cpp. Heads of queries and keys have
// their rows permuted even where no positions turn them.
#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// The layers with attention are those with heads of keys, which all have the
// same number. Biases are those of the first layer of each type.
void ReadGraniteLayers(GgufKeys& from, int64_t layers, PublishedKeys& to) {
  const std::vector<int64_t> heads =
      from.PerLayer("attention.head_count_kv", 0, kMostSize, layers);
  const int64_t most = *std::max_element(heads.begin(), heads.end());
  int64_t mamba = -1, softmax = -1;
  to["layer_types"] = PublishedKeys::array();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t own = heads[static_cast<size_t>(i)];
    if (own != 0 && own != most) {
      from.Refuse("attention.head_count_kv",
                  StrCat("0 or, as other layers have, ", most), StrCat(own));
    }
    to["layer_types"].push_back(own == 0 ? "mamba" : "attention");
    int64_t& first = own == 0 ? mamba : softmax;
    if (first < 0) first = i;
  }
  to["num_key_value_heads"] = std::max<int64_t>(most, 1);
  to["attention_bias"] =
      softmax >= 0 && from.HasTensor(StrCat("blk.", softmax, ".attn_q.bias"));
  ReadGgufMamba2(from, std::max<int64_t>(mamba, 0), to);
}

// A factor of 0 is as good as none.
double GraniteFactor(GgufKeys& from, const char* key, double usual) {
  const double factor = from.Real(key, 0.0);
  return factor == 0.0 ? usual : factor;
}

void ReadGraniteParts(GgufKeys& from, PublishedKeys& to) {
  const int64_t width = from.Integer("feed_forward_length", 1, kMostSize);
  const int64_t experts = from.Integer("expert_count", 0, 1 << 16, 0);
  to["num_local_experts"] = experts;
  to["num_experts_per_tok"] =
      from.Integer("expert_used_count", experts == 0 ? 0 : 1, 1 << 16, 0);
  to["intermediate_size"] = width;
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  to["shared_intermediate_size"] =
      experts == 0 ? from.Integer(kShared, 1, kMostSize, width)
                   : from.Integer(kShared, 1, kMostSize);
}

void ReadGgufGranite(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "granitemoehybrid";
  const int64_t layers = ReadGgufSizes(from, to);
  const int64_t d_model = to["hidden_size"].get<int64_t>();
  const int64_t heads = from.Integer("attention.head_count", 1, kMostSize);
  if (d_model % heads != 0) {
    from.Refuse("attention.head_count", StrCat("a divisor of ", d_model),
                StrCat(heads));
  }
  const int64_t head_dim = d_model / heads;
  to["num_attention_heads"] = heads;
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    from.Integer(key, head_dim, head_dim, head_dim);
  }
  ReadGraniteLayers(from, layers, to);
  const int64_t inner = from.Integer("ssm.inner_size", 1, kMostSize);
  if (inner % d_model != 0) {
    from.Refuse("ssm.inner_size",
                StrCat("a multiple of embedding_length, ", d_model),
                StrCat(inner));
  }
  to["mamba_expand"] = inner / d_model;
  ReadGraniteParts(from, to);
  ReadGgufNorm(from, to);
  to["embedding_multiplier"] = GraniteFactor(from, "embedding_scale", 1.0);
  to["residual_multiplier"] = GraniteFactor(from, "residual_scale", 1.0);
  to["logits_scaling"] = GraniteFactor(from, "logit_scale", 1.0);
  to["attention_multiplier"] = GraniteFactor(
      from, "attention.scale", 1.0 / std::sqrt(static_cast<double>(head_dim)));
  const bool rotary = from.Flag("rope.scaling.finetuned", true);
  to["position_embedding_type"] = rotary ? "rope" : "nope";
  to["head_dim"] = head_dim;
  ReadGgufRotary(from, to);
  to.erase("head_dim");  // of no file of the type
}

// Rows of gates and ups, by experts where there are any.
void MoveGraniteParts(const ModelConfig& view, const std::string& theirs,
                      const std::string& own, GgufTensors& tensors) {
  const bool mixed = view.feed_forward == FeedForwardOf("moe");
  const std::string ending = mixed ? "_shexp.weight" : ".weight";
  const std::vector<int64_t> shape = {view.d_ff, view.d_model};
  tensors.Add(theirs + "shared_mlp.input_linear.weight",
              WeightPart::Stacked({tensors(own + "ffn_gate" + ending, shape),
                                   tensors(own + "ffn_up" + ending, shape)}));
  tensors.Move(theirs + "shared_mlp.output_linear.weight",
               own + "ffn_down" + ending);
  if (!mixed) return;
  const int64_t experts = KeyOf<int64_t>(view, "experts");
  const int64_t width = KeyOf<int64_t>(view, "d_expert");
  const auto parts = [&](const char* name) {
    return GgufExpertParts(tensors, own + name, experts, width, view.d_model);
  };
  const std::vector<WeightPart> gates = parts("ffn_gate_exps.weight");
  const std::vector<WeightPart> ups = parts("ffn_up_exps.weight");
  std::vector<WeightPart> both;
  for (size_t e = 0; e < gates.size(); ++e) {
    both.insert(both.end(), {gates[e], ups[e]});
  }
  const std::string mixture = theirs + "block_sparse_moe.";
  tensors.Move(mixture + "router.layer.weight", own + "ffn_gate_inp.weight");
  tensors.Add(
      mixture + "input_linear.weight",
      WeightPart::Stacked(both).Reshaped({experts, 2 * width, view.d_model}));
  tensors.MoveAs(mixture + "output_linear.weight", own + "ffn_down_exps.weight",
                 {experts, view.d_model, width},
                 {experts, view.d_model, width});
}

void MoveGraniteSoftmax(const ModelConfig& view, const std::string& theirs,
                        const std::string& own, GgufTensors& tensors) {
  const auto turned = [&](const char* published, const char* name,
                          int64_t heads) {
    for (const char* kind : {".weight", ".bias"}) {
      const bool bias = kind[1] == 'b';
      if (bias && !KeyOf<bool>(view, "qkv_bias")) break;
      tensors.Add(StrCat(theirs, published, kind),
                  UnpermutedHeads(tensors, StrCat(own, name, kind), heads,
                                  view.d_key, bias ? 0 : view.d_model));
    }
  };
  turned("q_proj", "attn_q", view.n_heads);
  turned("k_proj", "attn_k", KeyHeadsOf(view));
  tensors.MoveLinear(theirs + "v_proj", own + "attn_v");
  tensors.MoveLinear(theirs + "o_proj", own + "attn_output");
}

void GgufGraniteTensors(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  tensors.Move("model.norm.weight", "output_norm.weight");
  tensors.MoveIf("lm_head.weight", "output.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    tensors.Move(theirs + "input_layernorm.weight", own + "attn_norm.weight");
    tensors.Move(theirs + "post_attention_layernorm.weight",
                 own + "ffn_norm.weight");
    if (view.attention == MixerKind("mamba2")) {
      MoveGgufMamba2(view, theirs + "mamba.", own, tensors);
    } else {
      MoveGraniteSoftmax(view, theirs + "self_attn.", own, tensors);
    }
    MoveGraniteParts(view, theirs, own, tensors);
  }
}

void AddGraniteWidths(const GgufExport& from, const std::string& own,
                      GgufKeyList& to) {
  const int64_t experts = PublishedInteger(from, "num_local_experts");
  const int64_t shared = PublishedInteger(from, "shared_intermediate_size");
  const std::string width = own + "feed_forward_length";
  if (experts == 0) return to.U32(width, shared);
  to.U32(width, PublishedInteger(from, "intermediate_size"));
  to.U32(own + "expert_count", experts);
  to.U32(own + "expert_used_count",
         PublishedInteger(from, "num_experts_per_tok"));
  to.U32(own + "expert_shared_feed_forward_length", shared);
}

void GgufGraniteKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string name = "granitehybrid", own = name + ".";
  const ModelConfig& config = from.config;
  const ModelConfig mamba = FirstView(config, "mamba2");
  const ModelConfig softmax = FirstView(config, "full");
  RequireForGguf(mamba.attention == MixerKind("mamba2"), "layer_types",
                 "a layer of Mamba-2", "none");
  const int64_t inner = mamba.n_heads * mamba.d_value;
  RequireForGguf(inner == 2 * config.d_model, "mamba_expand", "2",
                 StrCat(inner, " channels of ", config.d_model));
  AddGgufSizes(from, name, to);
  AddGraniteWidths(from, own, to);
  to.U32(own + "attention.head_count", softmax.n_heads);
  std::vector<int64_t> heads;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    heads.push_back(HasMixer(config, i, "full") ? KeyHeadsOf(softmax) : 0);
  }
  to.I32s(own + "attention.head_count_kv", heads);
  to.F32(own + "attention.layer_norm_rms_epsilon", config.norm_eps);
  to.F32(own + "attention.scale", PublishedReal(from, "attention_multiplier"));
  to.F32(own + "embedding_scale", config.embedding_factor);
  to.F32(own + "residual_scale", config.residual_factor);
  to.F32(own + "logit_scale", 1.0 / config.logit_factor);
  const bool rotary = config.positions == Positions::kRotary;
  to.Bool(own + "rope.scaling.finetuned", rotary);
  if (rotary) {
    AddGgufRotaryKeys(from, name, softmax.d_key, to);
  } else {
    to.U32(own + "rope.dimension_count", config.d_model / softmax.n_heads);
  }
  AddGgufMamba2(mamba, name, to);
}

}  // namespace

std::vector<GgufArchitecture> GgufGraniteRows() {
  return {{"granitehybrid",
           ReadGgufGranite,
           GgufGraniteTensors,
           {"granitemoehybrid"},
           GgufGraniteKeys}};
}

}  // namespace tarn
