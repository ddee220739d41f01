// `falcon-h1`, whose factors the converter multiplies into the weights, so that
// all of the published model are 1: conversion/falcon_h1.py and
// src/models/falcon-h1.cpp of llama.cpp.
#include "config/mixer_spec.h"
#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

void ReadGgufFalcon(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "falcon_h1";
  ReadGgufSizes(from, to);
  ReadGgufHeads(from, to);
  ReadGgufNorm(from, to);
  ReadGgufRotary(from, to);
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
  ReadGgufMamba2(from, 0, to);
  to["mamba_d_ssm"] = from.Integer("ssm.inner_size", 1, kMostSize);
  // llama.cpp norms after the gate.
  to["mamba_rms_norm"] = from.HasTensor("blk.0.ssm_norm.weight");
  to["mamba_norm_before_gate"] = false;
  to["projectors_bias"] = from.HasTensor("blk.0.ssm_out.bias");
  to["attention_bias"] = from.HasTensor("blk.0.attn_q.bias");
  to["mlp_bias"] = from.HasTensor("blk.0.ffn_gate.bias");
}

// To write, what multiplies embeddings and logits goes into their matrices.
void MoveFalconEnds(const ModelConfig& config, GgufTensors& tensors) {
  const std::vector<int64_t> shape = {config.vocab_size, config.d_model};
  const auto move = [&](const char* theirs, const char* own, double factor) {
    tensors.Add(theirs,
                Times(tensors(own, shape), static_cast<float>(1.0 / factor)));
  };
  move("model.embed_tokens.weight", "token_embd.weight",
       config.embedding_factor);
  if (!config.tied_head) {
    move("lm_head.weight", "output.weight", config.logit_factor);
  }
}

void GgufFalconTensors(const ModelConfig& config, GgufTensors& tensors) {
  MoveFalconEnds(config, tensors);
  tensors.Move("model.final_layernorm.weight", "output_norm.weight");
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    tensors.Move(theirs + "input_layernorm.weight", own + "attn_norm.weight");
    // The name has no ".weight".
    tensors.Move(theirs + "pre_ff_layernorm.weight", own + "ffn_norm");
    MoveGgufMamba2(MixerViews(LayerView(config, i))[0], theirs + "mamba.", own,
                   tensors);
    const std::string softmax = theirs + "self_attn.";
    tensors.MoveLinear(softmax + "q_proj", own + "attn_q");
    tensors.MoveLinear(softmax + "k_proj", own + "attn_k");
    tensors.MoveLinear(softmax + "v_proj", own + "attn_v");
    tensors.MoveLinear(softmax + "o_proj", own + "attn_output");
    MoveGgufUnit(theirs + "feed_forward.", own, tensors);
  }
}

void GgufFalconKeys(const GgufExport& from, GgufKeyList& to) {
  const std::string name = "falcon-h1";
  const ModelConfig& config = from.config;
  const std::vector<ModelConfig> views = MixerViews(LayerView(config, 0));
  const ModelConfig& softmax = views.back();
  RequireNotForGguf(from, "mamba_norm_before_gate");
  RequireForGguf(
      !config.tied_head || config.embedding_factor == config.logit_factor,
      "lm_head_multiplier",
      StrCat("embedding_multiplier, ", config.embedding_factor,
             ", of one matrix for both"),
      StrCat(config.logit_factor));
  AddGgufSizes(from, name, to);
  to.U32(name + ".feed_forward_length", config.d_ff);
  to.U32(name + ".attention.head_count", softmax.n_heads);
  to.U32(name + ".attention.head_count_kv", KeyHeadsOf(softmax));
  to.U32(name + ".attention.key_length", softmax.d_key);
  to.U32(name + ".attention.value_length", softmax.d_value);
  to.F32(name + ".attention.layer_norm_rms_epsilon", config.norm_eps);
  AddGgufRotaryKeys(from, name, softmax.d_key, to);
  AddGgufMamba2(views.front(), name, to);
}

}  // namespace

std::vector<GgufArchitecture> GgufFalconRows() {
  return {{"falcon-h1",
           ReadGgufFalcon,
           GgufFalconTensors,
           {"falcon_h1"},
           GgufFalconKeys}};
}

}  // namespace tarn
