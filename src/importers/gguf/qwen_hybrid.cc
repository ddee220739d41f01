// `qwen3next`, `qwen35` and `qwen35moe`: conversion/qwen.py and src/models/
// qwen3next.cpp, qwen35*.cpp of llama.cpp. Weights of norms are the published
// ones plus 1, but for the gated norm of Gated DeltaNet.
#include <algorithm>

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/gguf/layer_parts.h"
#include "importers/gguf/qwen_delta.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

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

// Some channels of a head rotate; returns their number.
int64_t ReadQwenRotary(GgufKeys& from, int64_t head_dim, PublishedKeys& to) {
  const int64_t channels =
      from.Integer("rope.dimension_count", 2, head_dim, head_dim);
  const double base = from.Real("rope.freq_base", 10000.0);
  PublishedKeys rope = GgufScaling(from, base, channels);
  rope["rope_theta"] = base;
  rope["partial_rotary_factor"] = FactorOf(channels, head_dim);
  to["rope_parameters"] = std::move(rope);
  return channels;
}

// Whether a file holds the extra prediction head whole, with the model's own
// embedding, as the layer after the model's. has: whether it has a tensor.
template <typename Has>
bool HasQwenMtp(int64_t layers, const Has& has) {
  const auto there = [&](const char* name) {
    return has(StrCat("blk.", layers, ".nextn.", name, ".weight"));
  };
  return there("eh_proj") && there("enorm") && there("hnorm") &&
         there("shared_head_norm") && !there("embed_tokens") &&
         !there("shared_head_head");
}

// The last of the file's layers predict later tokens: the extra prediction
// head, where it is one layer, and else left out. mtp_key: what counts it.
void ReadQwenBlocks(GgufKeys& from, const char* mtp_key, PublishedKeys& to) {
  const int64_t blocks = ReadGgufSizes(from, to);
  const int64_t later = from.Integer("nextn_predict_layers", 0, blocks - 1, 0);
  const int64_t layers = blocks - later;
  ReadGgufHeads(from, to);
  ReadGgufNorm(from, to);
  to["num_hidden_layers"] = layers;
  to[mtp_key] = later == 1 && !HasQwenMtp(layers,
                                          [&](const std::string& name) {
                                            return from.HasTensor(name);
                                          })
                    ? 0
                    : later;
  const int64_t channels =
      ReadQwenRotary(from, to["head_dim"].get<int64_t>(), to);
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

void ReadGgufQwen35(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_5_text";
  ReadQwenBlocks(from, "mtp_num_hidden_layers", to);
  to["intermediate_size"] = from.Integer("feed_forward_length", 1, kMostSize);
}

void ReadGgufQwen35Moe(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_5_moe_text";
  ReadQwenBlocks(from, "mtp_num_hidden_layers", to);
  ReadGgufExperts(from, "num_experts", to);
}

void ReadGgufQwenNext(GgufKeys& from, PublishedKeys& to) {
  to["model_type"] = "qwen3_next";
  ReadQwenBlocks(from, "num_nextn_predict_layers", to);
  ReadGgufExperts(from, "num_experts", to);
}

// What the converter adds to weights of norms.
constexpr float kQwenShift = 1.0f;

void MoveQwenSoftmax(const ModelConfig& view, const std::string& theirs,
                     const std::string& own, GgufTensors& tensors) {
  tensors.MoveLinear(theirs + "q_proj", own + "attn_q");
  tensors.MoveLinear(theirs + "k_proj", own + "attn_k");
  tensors.MoveLinear(theirs + "v_proj", own + "attn_v");
  tensors.MoveLinear(theirs + "o_proj", own + "attn_output");
  AddGgufNorm(theirs + "q_norm", own + "attn_q_norm", view.d_key, kQwenShift,
              tensors);
  AddGgufNorm(theirs + "k_norm", own + "attn_k_norm", view.d_key, kQwenShift,
              tensors);
}

// Some files hold gates and ups of an expert in one matrix.
void MoveQwenExperts(const ModelConfig& view, const std::string& theirs,
                     const std::string& own, GgufTensors& tensors) {
  const std::string fused = own + "ffn_gate_up_exps.weight";
  GgufExpertNames names = {"gate_proj", "up_proj", "down_proj"};
  if (!tensors.writes() && tensors.Has("", fused)) {
    const int64_t width = KeyOf<int64_t>(view, "d_expert");
    const std::vector<WeightPart> both =
        GgufExpertParts(tensors, fused, KeyOf<int64_t>(view, "experts"),
                        2 * width, view.d_model);
    for (size_t e = 0; e < both.size(); ++e) {
      const std::string expert = StrCat(theirs, e, ".");
      tensors.Add(expert + "gate_proj.weight", both[e].Rows({0, width}));
      tensors.Add(expert + "up_proj.weight", both[e].Rows({width, 2 * width}));
    }
    names.gate = names.up = nullptr;
  }
  MoveGgufExperts(view, theirs, names, own, tensors);
}

void MoveQwenParts(const ModelConfig& view, const std::string& theirs,
                   const std::string& own, GgufTensors& tensors) {
  if (view.feed_forward != FeedForwardOf("moe")) {
    return MoveGgufUnit(theirs, own, tensors);
  }
  tensors.Move(theirs + "gate.weight", own + "ffn_gate_inp.weight");
  MoveQwenExperts(view, theirs + "experts.", own, tensors);
  const std::string shared = theirs + "shared_expert.";
  tensors.Move(shared + "gate_proj.weight", own + "ffn_gate_shexp.weight");
  tensors.Move(shared + "up_proj.weight", own + "ffn_up_shexp.weight");
  tensors.Move(shared + "down_proj.weight", own + "ffn_down_shexp.weight");
  tensors.MoveAs(theirs + "shared_expert_gate.weight",
                 own + "ffn_gate_inp_shexp.weight", {1, view.d_model},
                 {1, view.d_model});
}

void MoveQwenLayer(const ModelConfig& view, bool packed,
                   const std::string& theirs, const std::string& own,
                   GgufTensors& tensors) {
  AddGgufNorm(theirs + "input_layernorm", own + "attn_norm", view.d_model,
              kQwenShift, tensors);
  AddGgufNorm(theirs + "post_attention_layernorm", own + "post_attention_norm",
              view.d_model, kQwenShift, tensors);
  if (view.attention == MixerKind("gdn")) {
    MoveQwenDelta(view, packed, theirs + "linear_attn.", own, tensors);
  } else {
    MoveQwenSoftmax(view, theirs + "self_attn.", own, tensors);
  }
  MoveQwenParts(view, theirs + "mlp.", own, tensors);
}

// The extra prediction head, which is read but not written.
void MoveQwenMtp(const ModelConfig& config, GgufTensors& tensors) {
  const std::optional<ModelConfig> head = MtpConfig(config);
  const int64_t layers = config.n_layers;
  if (tensors.writes() || !head ||
      tensors.Has("", StrCat("blk.", layers + 1, ".nextn.eh_proj.weight")) ||
      !HasQwenMtp(layers, [&](const std::string& name) {
        return tensors.Has("", name);
      })) {
    return;
  }
  const std::string own = StrCat("blk.", layers, ".");
  MoveQwenLayer(*head, /*packed=*/false, "mtp.layers.0.", own, tensors);
  for (const auto& [theirs, name] :
       {std::pair{"mtp.pre_fc_norm_embedding", "nextn.enorm"},
        {"mtp.pre_fc_norm_hidden", "nextn.hnorm"},
        {"mtp.norm", "nextn.shared_head_norm"}}) {
    AddGgufNorm(theirs, own + name, config.d_model, kQwenShift, tensors);
  }
  tensors.Move("mtp.fc.weight", own + "nextn.eh_proj.weight");
}

template <bool kPacked>
void GgufQwenTensors(const ModelConfig& config, GgufTensors& tensors) {
  AddGgufEnds(config, kQwenShift, tensors);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    MoveQwenLayer(LayerView(config, i), kPacked,
                  StrCat("model.layers.", i, "."), StrCat("blk.", i, "."),
                  tensors);
  }
  MoveQwenMtp(config, tensors);
  // Other layers that predict later tokens.
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

void AddQwenLayers(const ModelConfig& config, const std::string& own,
                   GgufKeyList& to) {
  std::vector<bool> recurrent;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    recurrent.push_back(HasMixer(config, i, "gdn"));
  }
  const int64_t interval = QwenInterval(recurrent);
  to.Bools(own + "attention.recurrent_layers", recurrent);
  if (interval > 0) to.U32(own + "full_attention_interval", interval);
}

int64_t QwenRotatedWidth(const ModelConfig& config) {
  const ModelConfig softmax = FirstView(config, "full");
  const int64_t part = KeyOf<int64_t>(softmax, "rotary_width");
  return part > 0 ? part : softmax.d_key;
}

void AddQwenKeys(const GgufExport& from, const std::string& name,
                 GgufKeyList& to) {
  const std::string own = name + ".";
  const ModelConfig& config = from.config;
  RequireNotForGguf(from, "attention_bias");
  const int64_t d_key = PublishedInteger(from, "linear_key_head_dim");
  const int64_t d_value = PublishedInteger(from, "linear_value_head_dim");
  RequireForGguf(d_key == d_value, "linear_value_head_dim",
                 StrCat("linear_key_head_dim, ", d_key), StrCat(d_value));
  AddGgufSizes(from, name, to);
  AddGgufHeads(from, name, to);
  AddGgufRotaryKeys(from, name, QwenRotatedWidth(config), to);
  to.F32(own + "attention.layer_norm_rms_epsilon", config.norm_eps);
  AddQwenLayers(config, own, to);
  const auto put = [&](const char* key, int64_t value) {
    to.U32(StrCat(own, "ssm.", key), value);
  };
  const int64_t heads = PublishedInteger(from, "linear_num_value_heads");
  put("conv_kernel", PublishedInteger(from, "linear_conv_kernel_dim"));
  put("state_size", d_key);
  put("group_count", PublishedInteger(from, "linear_num_key_heads"));
  put("time_step_rank", heads);
  put("inner_size", heads * d_value);
}

// In turn, the axes of a picture have a third of the angles each.
void AddQwenSections(const ModelConfig& config, const std::string& own,
                     GgufKeyList& to) {
  const int64_t pairs = QwenRotatedWidth(config) / 2;
  const std::vector<int64_t> sections = {(pairs + 2) / 3, (pairs + 1) / 3,
                                         pairs / 3, 0};
  to.I32s(own + kSections, sections);
}

void AddQwenExperts(const GgufExport& from, const std::string& own,
                    GgufKeyList& to) {
  for (int64_t i = 0; i < from.config.n_layers; ++i) {
    RequireForGguf(HasPart(from.config, i, "moe"), "mlp_only_layers",
                   "experts in all layers", StrCat("none in layer ", i));
  }
  RequireForGguf(from.published.value("norm_topk_prob", true), "norm_topk_prob",
                 "true", "false");
  const auto put = [&](const char* key, const char* published) {
    to.U32(own + key, PublishedInteger(from, published));
  };
  put("expert_count", "num_experts");
  put("expert_used_count", "num_experts_per_tok");
  put("expert_feed_forward_length", "moe_intermediate_size");
  put("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
}

void GgufQwen35Keys(const GgufExport& from, GgufKeyList& to) {
  AddQwenKeys(from, "qwen35", to);
  AddQwenSections(from.config, "qwen35.", to);
  to.U32("qwen35.feed_forward_length", from.config.d_ff);
}

void GgufQwen35MoeKeys(const GgufExport& from, GgufKeyList& to) {
  AddQwenKeys(from, "qwen35moe", to);
  AddQwenSections(from.config, "qwen35moe.", to);
  AddQwenExperts(from, "qwen35moe.", to);
}

void GgufQwenNextKeys(const GgufExport& from, GgufKeyList& to) {
  AddQwenKeys(from, "qwen3next", to);
  AddQwenExperts(from, "qwen3next.", to);
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
