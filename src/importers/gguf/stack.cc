#include "importers/gguf/stack.h"

#include "config/bounds.h"
#include "core/text.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kHead = "output.weight";

// A number that is the same in all layers.
int64_t OfAllLayers(GgufKeys& from, const char* key, int64_t layers,
                    int64_t most) {
  const std::vector<int64_t> numbers = from.PerLayer(key, 1, most, layers);
  for (const int64_t number : numbers) {
    if (number == numbers[0]) continue;
    from.Refuse(key, "one number for all layers", "different ones");
  }
  return numbers[0];
}

}  // namespace

int64_t ReadGgufSizes(GgufKeys& from, PublishedKeys& to) {
  const int64_t layers = from.Integer("block_count", 1, kMaxLayers);
  to["num_hidden_layers"] = layers;
  to["hidden_size"] = from.Integer("embedding_length", 1, kMostSize);
  to["max_position_embeddings"] =
      from.Integer("context_length", 1, INT32_MAX, kGgufContext);
  to["tie_word_embeddings"] = !from.HasTensor(kHead);
  return layers;
}

void ReadGgufHeads(GgufKeys& from, PublishedKeys& to) {
  const int64_t layers = to["num_hidden_layers"], width = to["hidden_size"];
  const int64_t heads =
      OfAllLayers(from, "attention.head_count", layers, kMostSize);
  to["num_attention_heads"] = heads;
  to["num_key_value_heads"] =
      from.Has("attention.head_count_kv")
          ? OfAllLayers(from, "attention.head_count_kv", layers, kMostSize)
          : heads;
  const int64_t usual = width / heads;
  const int64_t keys =
      from.Integer("attention.key_length", 1, kMostSize, usual);
  const int64_t values =
      from.Integer("attention.value_length", 1, kMostSize, usual);
  if (keys != values) {
    from.Refuse("attention.value_length",
                StrCat("attention.key_length, ", keys), StrCat(values));
  }
  to["head_dim"] = keys;
}

void ReadGgufNorm(GgufKeys& from, PublishedKeys& to) {
  to["rms_norm_eps"] = from.Real("attention.layer_norm_rms_epsilon");
}

int64_t ReadGgufStack(GgufKeys& from, PublishedKeys& to) {
  const int64_t layers = ReadGgufSizes(from, to);
  ReadGgufHeads(from, to);
  ReadGgufNorm(from, to);
  to["intermediate_size"] =
      OfAllLayers(from, "feed_forward_length", layers, kMostSize);
  from.Integer("expert_count", 0, 0, 0);
  from.Integer("expert_used_count", 0, 0, 0);
  return layers;
}

void AddGgufNorm(const std::string& published, const std::string& name,
                 int64_t width, float shift, GgufTensors& tensors) {
  const WeightPart weight = tensors(name + ".weight", {width});
  tensors.Add(published + ".weight",
              shift == 0 ? weight : weight.Shifted(-shift));
}

void AddGgufEnds(const ModelConfig& config, float shift, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  AddGgufNorm("model.norm", "output_norm", config.d_model, shift, tensors);
  if (!config.tied_head) tensors.Move("lm_head.weight", kHead);
}

void AddGgufStack(const ModelConfig& config, const GgufStackForm& form,
                  GgufTensors& tensors) {
  AddGgufEnds(config, form.norm_shift, tensors);
  WriteGgufFactors(config, config.d_key, tensors);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    const ModelConfig view = LayerView(config, i);
    const auto norm = [&](const char* published, const char* name,
                          int64_t width) {
      AddGgufNorm(theirs + published, own + name, width, form.norm_shift,
                  tensors);
    };
    const auto rotated = [&](const char* published, const char* name,
                             int64_t heads) {
      if (!form.permuted) {
        tensors.MoveLinear(theirs + published, own + name);
        return;
      }
      tensors.Add(theirs + published + ".weight",
                  UnpermutedHeads(tensors, own + name + ".weight", heads,
                                  view.d_key, view.d_model));
      const std::string bias = theirs + published + ".bias";
      if (!tensors.Has(bias, own + name + ".bias")) return;
      tensors.Add(bias, UnpermutedHeads(tensors, own + name + ".bias", heads,
                                        view.d_key, 0));
    };
    norm("input_layernorm", "attn_norm", view.d_model);
    rotated("self_attn.q_proj", "attn_q", view.n_heads);
    rotated("self_attn.k_proj", "attn_k", KeyHeadsOf(view));
    tensors.MoveLinear(theirs + "self_attn.v_proj", own + "attn_v");
    tensors.MoveLinear(theirs + "self_attn.o_proj", own + "attn_output");
    if (form.head_norms) {
      norm("self_attn.q_norm", "attn_q_norm", view.d_key);
      norm("self_attn.k_norm", "attn_k_norm", view.d_key);
    }
    if (form.norms_after) {
      norm("post_attention_layernorm", "post_attention_norm", view.d_model);
      norm("pre_feedforward_layernorm", "ffn_norm", view.d_model);
      norm("post_feedforward_layernorm", "post_ffw_norm", view.d_model);
    } else {
      norm("post_attention_layernorm", "ffn_norm", view.d_model);
    }
    tensors.MoveLinear(theirs + "mlp.gate_proj", own + "ffn_gate");
    tensors.MoveLinear(theirs + "mlp.up_proj", own + "ffn_up");
    tensors.MoveLinear(theirs + "mlp.down_proj", own + "ffn_down");
  }
}

void AddGgufSizes(const GgufExport& from, const std::string& architecture,
                  GgufKeyList& to) {
  const ModelConfig& config = from.config;
  to.U32(architecture + ".block_count", config.n_layers);
  to.U32(architecture + ".context_length",
         from.published.value("max_position_embeddings", kGgufContext));
  to.U32(architecture + ".embedding_length", config.d_model);
  to.U32(architecture + ".vocab_size", config.vocab_size);
}

void AddGgufHeads(const GgufExport& from, const std::string& architecture,
                  GgufKeyList& to) {
  const ModelConfig view = FirstView(from.config, "full");
  const std::string attention = architecture + ".attention.";
  to.U32(attention + "head_count", view.n_heads);
  to.U32(attention + "head_count_kv", KeyHeadsOf(view));
  to.U32(attention + "key_length", view.d_key);
  to.U32(attention + "value_length", view.d_value);
}

void AddGgufStackKeys(const GgufExport& from, const std::string& architecture,
                      GgufKeyList& to) {
  AddGgufSizes(from, architecture, to);
  to.U32(architecture + ".feed_forward_length", from.config.d_ff);
  AddGgufHeads(from, architecture, to);
  to.F32(architecture + ".attention.layer_norm_rms_epsilon",
         from.config.norm_eps);
}

}  // namespace tarn
