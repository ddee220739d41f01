#include "importers/gguf/hybrid_parts.h"

#include <charconv>
#include <cmath>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// Of convert_hf_to_gguf.py, for models whose state has one size.
constexpr int64_t kAnyLength = int64_t{1} << 20;
constexpr int64_t kMostExperts = 1 << 16;

// 1e-5 of a file is the float32 next to it; the decimal number was meant.
double ShortestDecimal(double value) {
  const float stored = static_cast<float>(value);
  if (static_cast<double>(stored) != value) return value;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), stored).ptr;
  double shortest = value;
  std::from_chars(text, end, shortest);
  return shortest;
}

}  // namespace

double GgufNormEps(GgufKeys& from, const char* key) {
  return ShortestDecimal(from.Real(key));
}

int64_t ReadGgufStack(GgufKeys& from, PublishedKeys& to, int64_t later) {
  const int64_t blocks =
      from.Integer("block_count", later + 1, later + kMaxLayers);
  to["hidden_size"] = from.Integer("embedding_length", 1, kMostSize);
  to["num_hidden_layers"] = blocks - later;
  to["tie_word_embeddings"] = !from.HasTensor("output.weight");
  from.Ignore({"context_length", "vocab_size"});
  return blocks - later;
}

int64_t ReadGgufHeads(GgufKeys& from, PublishedKeys& to) {
  const int64_t heads = from.Integer("attention.head_count", 1, kMostSize);
  const int64_t d_model = to["hidden_size"].get<int64_t>();
  const int64_t width =
      from.Integer("attention.key_length", 1, kMostSize, d_model / heads);
  const int64_t values =
      from.Integer("attention.value_length", 1, kMostSize, width);
  if (values != width) {
    from.Refuse("attention.value_length", StrCat("key_length, ", width),
                StrCat(values));
  }
  to["num_attention_heads"] = heads;
  to["head_dim"] = width;
  return width;
}

int64_t ReadGgufRotary(GgufKeys& from, int64_t head_dim, bool part,
                       PublishedKeys& to) {
  const int64_t channels =
      from.Integer("rope.dimension_count", part ? 2 : 1, head_dim, head_dim);
  if (!part && channels != head_dim) {
    from.Refuse("rope.dimension_count", StrCat(head_dim, ", all of a head"),
                StrCat(channels));
  }
  PublishedKeys rope = {
      {"rope_type", "default"},
      {"rope_theta", ShortestDecimal(from.Real("rope.freq_base", 10000.0))}};
  if (part) rope["partial_rotary_factor"] = FactorOf(channels, head_dim);
  const std::string type = from.Text("rope.scaling.type", "none");
  if (type == "linear") {
    rope["rope_type"] = "linear";
    rope["factor"] = ShortestDecimal(from.Real("rope.scaling.factor"));
  } else if (type != "none") {
    from.Refuse("rope.scaling.type", "'none' or 'linear'", Quoted(type));
  }
  to["rope_parameters"] = std::move(rope);
  return channels;
}

void ReadGgufExperts(GgufKeys& from, const char* experts, PublishedKeys& to) {
  const int64_t count = from.Integer("expert_count", 1, kMostExperts);
  const int64_t chosen = from.Integer("expert_used_count", 1, count);
  const int64_t width = from.Integer("feed_forward_length", 0, kMostSize, 0);
  const auto size = [&](const char* key, int64_t usual) {
    return usual == 0 ? from.Integer(key, 1, kMostSize)
                      : from.Integer(key, 1, kMostSize, usual);
  };
  to[experts] = count;
  to["num_experts_per_tok"] = chosen;
  to["moe_intermediate_size"] =
      size("expert_feed_forward_length", width / chosen);
  to["shared_expert_intermediate_size"] =
      size("expert_shared_feed_forward_length", width);
}

void ReadGgufMamba2(GgufKeys& from, int64_t block, PublishedKeys& to) {
  const int64_t inner = from.Integer("ssm.inner_size", 1, kMostSize);
  const int64_t heads = from.Integer("ssm.time_step_rank", 1, kMostSize);
  if (inner % heads != 0) {
    from.Refuse("ssm.time_step_rank", StrCat("heads, a divisor of ", inner),
                StrCat(heads));
  }
  const std::string own = StrCat("blk.", block, ".");
  to["mamba_n_heads"] = heads;
  to["mamba_d_head"] = inner / heads;
  to["mamba_d_state"] = from.Integer("ssm.state_size", 1, kMostSize);
  to["mamba_n_groups"] = from.Integer("ssm.group_count", 1, kMostSize);
  to["mamba_d_conv"] = from.Integer("ssm.conv_kernel", 1, kMostSize);
  to["mamba_conv_bias"] = from.HasTensor(own + "ssm_conv1d.bias");
  to["mamba_proj_bias"] = from.HasTensor(own + "ssm_in.bias");
}

void MoveGgufMamba2(const ModelConfig& view, const std::string& theirs,
                    const std::string& own, GgufTensors& tensors) {
  const int64_t heads = view.n_heads, values = heads * view.d_value;
  const int64_t groups = KeyHeadsOf(view);
  const int64_t channels = values + 2 * groups * view.d_key;
  const int64_t width = KeyOf<int64_t>(view, "conv_width");
  tensors.MoveLinear(theirs + "in_proj", own + "ssm_in");
  tensors.MoveAs(theirs + "conv1d.weight", own + "ssm_conv1d.weight",
                 {channels, 1, width}, {channels, width});
  tensors.MoveIf(theirs + "conv1d.bias", own + "ssm_conv1d.bias");
  tensors.Add(theirs + "A_log",
              GgufRates(tensors, own + "ssm_a", {heads, 1}).Reshaped({heads}));
  tensors.MoveAs(theirs + "D", own + "ssm_d", {heads}, {heads, 1});
  tensors.Move(theirs + "dt_bias", own + "ssm_dt.bias");
  if (KeyOf<bool>(view, "mamba2_norm")) {
    tensors.MoveAs(theirs + "norm.weight", own + "ssm_norm.weight", {values},
                   {groups, values / groups});
  }
  tensors.MoveLinear(theirs + "out_proj", own + "ssm_out");
}

void MoveGgufUnit(const std::string& theirs, const std::string& own,
                  GgufTensors& tensors) {
  tensors.MoveLinear(theirs + "gate_proj", own + "ffn_gate");
  tensors.MoveLinear(theirs + "up_proj", own + "ffn_up");
  tensors.MoveLinear(theirs + "down_proj", own + "ffn_down");
}

WeightPart GgufRates(GgufTensors& tensors, const std::string& name,
                     const std::vector<int64_t>& shape) {
  return tensors(name, shape).LogOfNegated();
}

std::vector<WeightPart> GgufExpertParts(GgufTensors& tensors,
                                        const std::string& name,
                                        int64_t experts, int64_t rows,
                                        int64_t columns) {
  const WeightPart all = tensors(name, {experts, rows, columns})
                             .Reshaped({experts * rows, columns});
  std::vector<WeightPart> parts;
  for (int64_t e = 0; e < experts; ++e) {
    parts.push_back(all.Rows({e * rows, (e + 1) * rows}));
  }
  return parts;
}

int64_t PublishedInteger(const GgufExport& from, const char* key) {
  return from.published.at(key).get<int64_t>();
}

double PublishedReal(const GgufExport& from, const char* key) {
  return from.published.at(key).get<double>();
}

void RequireForGguf(bool holds, const char* key, const std::string& wanted,
                    const std::string& given) {
  if (holds) return;
  throw FormatError(StrCat("config.json: ", key),
                    wanted + ", as llama.cpp runs it", given);
}

void RequireNotForGguf(const GgufExport& from, const char* key) {
  RequireForGguf(!from.published.value(key, false), key, "false", "true");
}

void AddGgufStack(const GgufExport& from, GgufArchitectureKeys& to) {
  to.U32("block_count", PublishedInteger(from, "num_hidden_layers"));
  to.U32("context_length", kAnyLength);
  to.U32("embedding_length", PublishedInteger(from, "hidden_size"));
}

void AddGgufHeads(const GgufExport& from, GgufArchitectureKeys& to) {
  to.U32("attention.head_count", PublishedInteger(from, "num_attention_heads"));
  to.U32("attention.head_count_kv",
         PublishedInteger(from, "num_key_value_heads"));
  to.U32("attention.key_length", PublishedInteger(from, "head_dim"));
  to.U32("attention.value_length", PublishedInteger(from, "head_dim"));
}

void AddGgufRotary(const GgufExport& from, int64_t channels,
                   GgufArchitectureKeys& to) {
  RequireForGguf(from.config.rotary_scaling == RotaryScalingKind::kNone,
                 "rope_parameters", "frequencies that are not scaled",
                 "scaled ones");
  to.F32("rope.freq_base", from.config.rotary_base);
  to.U32("rope.dimension_count", channels);
}

void AddGgufMamba2(const ModelConfig& view, GgufArchitectureKeys& to) {
  const double least = KeyOf<double>(view, "least_step");
  const double most = KeyOf<double>(view, "most_step");
  RequireForGguf(least == 0.0 && most == 0.0, "time_step_limit",
                 "steps without limits", StrCat("[", least, ", ", most, "]"));
  const bool biases = KeyOf<bool>(view, "recurrent_in_bias") ||
                      KeyOf<bool>(view, "recurrent_out_bias");
  RequireForGguf(!biases, "use_bias", "products of Mamba-2 without biases",
                 "biases");
  to.U32("ssm.conv_kernel", KeyOf<int64_t>(view, "conv_width"));
  to.U32("ssm.inner_size", view.n_heads * view.d_value);
  to.U32("ssm.state_size", view.d_key);
  to.U32("ssm.time_step_rank", view.n_heads);
  to.U32("ssm.group_count", KeyHeadsOf(view));
}

}  // namespace tarn
