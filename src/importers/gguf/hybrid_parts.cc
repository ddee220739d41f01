#include "importers/gguf/hybrid_parts.h"

#include "core/text.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr int64_t kMostExperts = 1 << 16;

}  // namespace

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

void AddGgufMamba2(const ModelConfig& view, const std::string& architecture,
                   GgufKeyList& to) {
  const double least = KeyOf<double>(view, "least_step");
  const double most = KeyOf<double>(view, "most_step");
  RequireForGguf(least == 0.0 && most == 0.0, "time_step_limit",
                 "steps without limits", StrCat("[", least, ", ", most, "]"));
  const bool biases = KeyOf<bool>(view, "recurrent_in_bias") ||
                      KeyOf<bool>(view, "recurrent_out_bias");
  RequireForGguf(!biases, "use_bias", "products of Mamba-2 without biases",
                 "biases");
  const std::string own = architecture + ".ssm.";
  to.U32(own + "conv_kernel", KeyOf<int64_t>(view, "conv_width"));
  to.U32(own + "inner_size", view.n_heads * view.d_value);
  to.U32(own + "state_size", view.d_key);
  to.U32(own + "time_step_rank", view.n_heads);
  to.U32(own + "group_count", KeyHeadsOf(view));
}

}  // namespace tarn
