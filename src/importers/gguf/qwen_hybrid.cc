// `qwen3next`, `qwen35` and `qwen35moe`: conversion/qwen.py and src/models/
// qwen3next.cpp, qwen35*.cpp of llama.cpp. Weights of norms are the published
// ones plus 1, but for the gated norm of Gated DeltaNet.
#include <algorithm>

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/qwen_delta.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kQwenEps = "attention.layer_norm_rms_epsilon";
constexpr const char* kSections = "rope.dimension_sections";

// Layers of softmax attention: those that the file lists, of all its layers, or
// each `full_attention_interval`-th.
std::vector<bool> QwenFullLayers(GgufKeys& from, int64_t layers,
                                 int64_t later) {
  const int64_t interval =
      from.Integer("full_attention_interval", 1, kMostSize, 4);
  constexpr const char* kListed = "attention.recurrent_layers";
  std::vector<bool> full;
  if (!from.Has(kListed)) {
    for (int64_t i = 0; i < layers; ++i) {
      full.push_back((i + 1) % interval == 0);
    }
    return full;
  }
  const int64_t blocks = layers + later;
  full = from.Flags(kListed, static_cast<uint64_t>(blocks));
  if (std::ssize(full) != blocks) {
    from.Refuse(kListed, StrCat(blocks, " flags"), StrCat(full.size()));
  }
  full.resize(static_cast<size_t>(layers));
  full.flip();
  return full;
}

// The angle of a rotated pair counts one of the axes of a picture, pair by pair
// in turn while an axis has some left, or else nothing. A text has the same
// position on the axes.
void CheckQwenSections(GgufKeys& from, int64_t pairs) {
  const std::vector<int64_t> sections =
      from.Integers(kSections, 0, kMostSize, 4);
  if (sections.empty()) return;
  int64_t total = 0;
  for (const int64_t section : sections) total += section;
  for (int64_t pair = 0; pair < std::min(pairs, total); ++pair) {
    const size_t axis = static_cast<size_t>(pair % 3);
    if (axis < sections.size() && pair < 3 * sections[axis]) continue;
    total = 0;
  }
  if (total > 0) return;
  from.Refuse(kSections, StrCat("an axis for each of ", pairs, " angles"),
              StrCat("none for some of them"));
}

void ReadQwenBlocks(GgufKeys& from, PublishedKeys& to, int64_t later) {
  const int64_t layers = ReadGgufStack(from, to, later);
  const int64_t head_dim = ReadGgufHeads(from, to);
  to["num_key_value_heads"] =
      from.Integer("attention.head_count_kv", 1, kMostSize,
                   to["num_attention_heads"].get<int64_t>());
  to["rms_norm_eps"] = GgufNormEps(from, kQwenEps);
  const int64_t channels = ReadGgufRotary(from, head_dim, /*part=*/true, to);
  CheckQwenSections(from, channels / 2);
  const std::vector<bool> full = QwenFullLayers(from, layers, later);
  to["layer_types"] = PublishedKeys::array();
  for (const bool softmax : full) {
    to["layer_types"].push_back(softmax ? "full_attention"
                                        : "linear_attention");
  }
  const auto first = std::find(full.begin(), full.end(), true);
  to["attention_bias"] =
      first != full.end() &&
      from.HasTensor(StrCat("blk.", first - full.begin(), ".attn_q.bias"));
  const int64_t heads = from.Integer("ssm.time_step_rank", 1, kMostSize);
  const int64_t inner = from.Integer("ssm.inner_size", 1, kMostSize);
  if (inner % heads != 0) {
    from.Refuse("ssm.time_step_rank",
                StrCat("heads of values, a divisor of ", inner), StrCat(heads));
  }
  to["linear_num_value_heads"] = heads;
  to["linear_value_head_dim"] = inner / heads;
  to["linear_num_key_heads"] = from.Integer("ssm.group_count", 1, kMostSize);
  to["linear_key_head_dim"] = from.Integer("ssm.state_size", 1, kMostSize);
  to["linear_conv_kernel_dim"] = from.Integer("ssm.conv_kernel", 1, kMostSize);
}

int64_t LaterLayers(GgufKeys& from) {
  return from.Integer("nextn_predict_layers", 0, 64, 0);
}

void ReadGgufQwen35(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_5_text";
  ReadQwenBlocks(from, to, LaterLayers(from));
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
}

void ReadGgufQwen35Moe(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_5_moe_text";
  ReadQwenBlocks(from, to, LaterLayers(from));
  ReadGgufExperts(from, "num_experts", to);
}

void ReadGgufQwenNext(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_next";
  ReadQwenBlocks(from, to, LaterLayers(from));
  ReadGgufExperts(from, "num_experts", to);
}

void MoveQwenNorm(const std::string& theirs, const std::string& own,
                  int64_t width, GgufTensors& tensors) {
  tensors.Add(theirs + ".weight",
              tensors(own + ".weight", {width}).Shifted(-1.0f));
}

void MoveQwenSoftmax(const ModelConfig& view, const std::string& theirs,
                     const std::string& own, GgufTensors& tensors) {
  tensors.MoveLinear(theirs + "q_proj", own + "attn_q");
  tensors.MoveLinear(theirs + "k_proj", own + "attn_k");
  tensors.MoveLinear(theirs + "v_proj", own + "attn_v");
  tensors.MoveLinear(theirs + "o_proj", own + "attn_output");
  MoveQwenNorm(theirs + "q_norm", own + "attn_q_norm", view.d_key, tensors);
  MoveQwenNorm(theirs + "k_norm", own + "attn_k_norm", view.d_key, tensors);
}

// Experts one by one, as published files have them; some files hold gates and
// ups of an expert in one matrix.
void MoveQwenExperts(const ModelConfig& view, const std::string& theirs,
                     const std::string& own, GgufTensors& tensors) {
  const int64_t experts = KeyOf<int64_t>(view, "experts");
  const int64_t width = KeyOf<int64_t>(view, "d_expert"), d = view.d_model;
  const auto add = [&](int64_t e, const char* name, WeightPart part) {
    tensors.Add(StrCat(theirs, "experts.", e, ".", name, ".weight"),
                std::move(part));
  };
  const std::string fused = own + "ffn_gate_up_exps.weight";
  if (!tensors.writes() && tensors.Has("", fused)) {
    const auto both = GgufExpertParts(tensors, fused, experts, 2 * width, d);
    for (int64_t e = 0; e < experts; ++e) {
      const WeightPart& rows = both[static_cast<size_t>(e)];
      add(e, "gate_proj", rows.Rows({0, width}));
      add(e, "up_proj", rows.Rows({width, 2 * width}));
    }
  } else {
    for (const auto& [name, file] :
         {std::pair{"gate_proj", "ffn_gate_exps.weight"},
          {"up_proj", "ffn_up_exps.weight"}}) {
      const auto parts =
          GgufExpertParts(tensors, own + file, experts, width, d);
      for (int64_t e = 0; e < experts; ++e) {
        add(e, name, parts[static_cast<size_t>(e)]);
      }
    }
  }
  const auto down =
      GgufExpertParts(tensors, own + "ffn_down_exps.weight", experts, d, width);
  for (int64_t e = 0; e < experts; ++e) {
    add(e, "down_proj", down[static_cast<size_t>(e)]);
  }
}

void MoveQwenParts(const ModelConfig& view, const std::string& theirs,
                   const std::string& own, GgufTensors& tensors) {
  if (view.feed_forward != FeedForwardOf("moe")) {
    return MoveGgufUnit(theirs, own, tensors);
  }
  tensors.Move(theirs + "gate.weight", own + "ffn_gate_inp.weight");
  MoveQwenExperts(view, theirs, own, tensors);
  const std::string shared = theirs + "shared_expert.";
  tensors.Move(shared + "gate_proj.weight", own + "ffn_gate_shexp.weight");
  tensors.Move(shared + "up_proj.weight", own + "ffn_up_shexp.weight");
  tensors.Move(shared + "down_proj.weight", own + "ffn_down_shexp.weight");
  tensors.MoveAs(theirs + "shared_expert_gate.weight",
                 own + "ffn_gate_inp_shexp.weight", {1, view.d_model},
                 {1, view.d_model});
}

template <bool kPacked>
void GgufQwenTensors(const ModelConfig& config, GgufTensors& tensors) {
  tensors.Move("model.embed_tokens.weight", "token_embd.weight");
  tensors.MoveIf("lm_head.weight", "output.weight");
  MoveQwenNorm("model.norm", "output_norm", config.d_model, tensors);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const ModelConfig view = LayerView(config, i);
    const std::string theirs = StrCat("model.layers.", i, ".");
    const std::string own = StrCat("blk.", i, ".");
    MoveQwenNorm(theirs + "input_layernorm", own + "attn_norm", config.d_model,
                 tensors);
    MoveQwenNorm(theirs + "post_attention_layernorm",
                 own + "post_attention_norm", config.d_model, tensors);
    if (view.attention == MixerKind("gdn")) {
      MoveQwenDelta(view, kPacked, theirs + "linear_attn.", own, tensors);
    } else {
      MoveQwenSoftmax(view, theirs + "self_attn.", own, tensors);
    }
    MoveQwenParts(view, theirs + "mlp.", own, tensors);
  }
  // Further layers predict later tokens.
  for (int64_t i = config.n_layers;
       !tensors.writes() &&
       tensors.Has("", StrCat("blk.", i, ".nextn.eh_proj.weight"));
       ++i) {
    tensors.Skip(StrCat("blk.", i, "."));
  }
}

// Every how many layers one has softmax attention; 0: no such number.
int64_t QwenInterval(const std::vector<bool>& recurrent) {
  const int64_t layers = std::ssize(recurrent);
  for (int64_t interval = 1; interval <= layers + 1; ++interval) {
    bool fits = true;
    for (int64_t i = 0; fits && i < layers; ++i) {
      fits = recurrent[static_cast<size_t>(i)] == ((i + 1) % interval != 0);
    }
    if (fits) return interval;
  }
  return 0;
}

void AddQwenLayers(const ModelConfig& config, GgufArchitectureKeys& to) {
  std::vector<bool> recurrent;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    recurrent.push_back(HasMixer(config, i, "gdn"));
  }
  const int64_t interval = QwenInterval(recurrent);
  to.Bools("attention.recurrent_layers", recurrent);
  if (interval > 0) to.U32("full_attention_interval", interval);
}

void AddQwenKeys(const GgufExport& from, GgufArchitectureKeys& to) {
  const ModelConfig& config = from.config;
  const ModelConfig softmax = FirstView(config, "full");
  const ModelConfig delta = FirstView(config, "gdn");
  RequireNotForGguf(from, "attention_bias");
  const int64_t d_key = PublishedInteger(from, "linear_key_head_dim");
  const int64_t d_value = PublishedInteger(from, "linear_value_head_dim");
  RequireForGguf(d_key == d_value, "linear_value_head_dim",
                 StrCat("linear_key_head_dim, ", d_key), StrCat(d_value));
  AddGgufStack(from, to);
  AddGgufHeads(from, to);
  const int64_t part = KeyOf<int64_t>(softmax, "rotary_width");
  AddGgufRotary(from, part > 0 ? part : softmax.d_key, to);
  to.F32(kQwenEps, config.norm_eps);
  AddQwenLayers(config, to);
  const int64_t heads = PublishedInteger(from, "linear_num_value_heads");
  to.U32("ssm.conv_kernel", PublishedInteger(from, "linear_conv_kernel_dim"));
  to.U32("ssm.state_size", d_key);
  to.U32("ssm.group_count", PublishedInteger(from, "linear_num_key_heads"));
  to.U32("ssm.time_step_rank", heads);
  to.U32("ssm.inner_size", heads * d_value);
}

// One after the other, the axes of a picture have a third of the angles each.
void AddQwenSections(const ModelConfig& config, GgufArchitectureKeys& to) {
  const ModelConfig softmax = FirstView(config, "full");
  const int64_t part = KeyOf<int64_t>(softmax, "rotary_width");
  const int64_t pairs = (part > 0 ? part : softmax.d_key) / 2;
  to.I32s(kSections, {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

void AddQwenExperts(const GgufExport& from, GgufArchitectureKeys& to) {
  const int64_t layers = from.config.n_layers;
  for (int64_t i = 0; i < layers; ++i) {
    RequireForGguf(HasPart(from.config, i, "moe"), "mlp_only_layers",
                   "experts in all layers", StrCat("none in layer ", i));
  }
  RequireForGguf(from.published.value("norm_topk_prob", true), "norm_topk_prob",
                 "true", "false");
  to.U32("expert_count", PublishedInteger(from, "num_experts"));
  to.U32("expert_used_count", PublishedInteger(from, "num_experts_per_tok"));
  to.U32("expert_feed_forward_length",
         PublishedInteger(from, "moe_intermediate_size"));
  to.U32("expert_shared_feed_forward_length",
         PublishedInteger(from, "shared_expert_intermediate_size"));
}

void GgufQwen35Keys(const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to("qwen35", list);
  AddQwenKeys(from, to);
  AddQwenSections(from.config, to);
  to.U32("feed_forward_length", PublishedInteger(from, "intermediate_size"));
}

void GgufQwen35MoeKeys(const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to("qwen35moe", list);
  AddQwenKeys(from, to);
  AddQwenSections(from.config, to);
  AddQwenExperts(from, to);
}

void GgufQwenNextKeys(const GgufExport& from, GgufKeyList& list) {
  GgufArchitectureKeys to("qwen3next", list);
  AddQwenKeys(from, to);
  AddQwenExperts(from, to);
}

}  // namespace

std::vector<GgufArchitecture> GgufQwenRows() {
  return {{"qwen35",
           ReadGgufQwen35,
           GgufQwenTensors<false>,
           {"qwen3_5_text"},
           GgufQwen35Keys},
          {"qwen35moe",
           ReadGgufQwen35Moe,
           GgufQwenTensors<false>,
           {"qwen3_5_moe_text"},
           GgufQwen35MoeKeys},
          {"qwen3next",
           ReadGgufQwenNext,
           GgufQwenTensors<true>,
           {"qwen3_next"},
           GgufQwenNextKeys}};
}

}  // namespace tarn
