#include "importers/gguf/layer_parts.h"

#include "core/text.h"
#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

constexpr const char* kKeyHeads = "attention.head_count_kv";

}  // namespace

int64_t OneGgufNumber(GgufKeys& from, const char* key,
                      const std::vector<int64_t>& values, int64_t absent) {
  int64_t one = 0;
  for (const int64_t value : values) {
    if (value == 0 || value == one) continue;
    if (one != 0) from.Refuse(key, StrCat("0 or ", one), StrCat(value));
    one = value;
  }
  return one == 0 ? absent : one;
}

std::vector<int64_t> ReadGgufLayerHeads(GgufKeys& from, int64_t blocks,
                                        PublishedKeys& to) {
  const int64_t heads = from.Integer("attention.head_count", 1, kMostSize);
  const int64_t usual = to["hidden_size"].get<int64_t>() / heads;
  const int64_t width =
      usual > 0 ? from.Integer("attention.key_length", 1, kMostSize, usual)
                : from.Integer("attention.key_length", 1, kMostSize);
  const int64_t values =
      from.Integer("attention.value_length", 1, kMostSize, width);
  if (values != width) {
    from.Refuse("attention.value_length",
                StrCat("attention.key_length, ", width), StrCat(values));
  }
  const std::vector<int64_t> shared =
      from.PerLayer(kKeyHeads, 0, kMostSize, blocks);
  to["num_attention_heads"] = heads;
  to["head_dim"] = width;
  to["num_key_value_heads"] = OneGgufNumber(from, kKeyHeads, shared, 1);
  return shared;
}

void AddGgufLayerHeads(const GgufExport& from, const std::string& architecture,
                       bool widths, GgufKeyList& to) {
  const ModelConfig softmax = FirstView(from.config, "full");
  const std::string attention = architecture + ".attention.";
  std::vector<int64_t> shared;
  for (int64_t i = 0; i < from.config.n_layers; ++i) {
    shared.push_back(HasMixer(from.config, i, "full") ? KeyHeadsOf(softmax)
                                                      : 0);
  }
  to.U32(attention + "head_count", softmax.n_heads);
  to.I32s(attention + "head_count_kv", shared);
  if (!widths) return;
  to.U32(attention + "key_length", softmax.d_key);
  to.U32(attention + "value_length", softmax.d_value);
}

void RequireFullHeads(const ModelConfig& softmax, int64_t d_model) {
  const int64_t width = softmax.n_heads * softmax.d_key;
  RequireForGguf(
      width == d_model, "head_dim",
      StrCat("heads that are as wide together as hidden_size, ", d_model),
      StrCat(width));
}

void MoveGgufExperts(const ModelConfig& view, const std::string& theirs,
                     const GgufExpertNames& names, const std::string& own,
                     GgufTensors& tensors) {
  const int64_t experts = KeyOf<int64_t>(view, "experts");
  const int64_t width = KeyOf<int64_t>(view, "d_expert");
  const auto move = [&](const char* published, const char* name, int64_t rows,
                        int64_t columns) {
    if (published == nullptr) return;
    const std::vector<WeightPart> parts =
        GgufExpertParts(tensors, own + name, experts, rows, columns);
    for (size_t e = 0; e < parts.size(); ++e) {
      tensors.Add(StrCat(theirs, e, ".", published, ".weight"), parts[e]);
    }
  };
  move(names.gate, "ffn_gate_exps.weight", width, view.d_model);
  move(names.up, "ffn_up_exps.weight", width, view.d_model);
  move(names.down, "ffn_down_exps.weight", view.d_model, width);
}

void MoveGgufRouter(const std::string& published_weight,
                    const std::string& published_bias, const std::string& own,
                    GgufTensors& tensors) {
  tensors.Move(published_weight, own + "ffn_gate_inp.weight");
  tensors.Move(published_bias, own + "exp_probs_b.bias");
}

double GgufExpertScale(GgufKeys& from) {
  const double scale = from.Real("expert_weights_scale", 0.0);
  return scale == 0.0 ? 1.0 : scale;
}

}  // namespace tarn
