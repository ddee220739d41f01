// Which keys of its sections a model reads: those of every model by the table
// below, those of a mixer by its spec.
#include <algorithm>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

struct Condition {
  const char* key;
  bool (*read)(const ModelConfig& finished);
};

bool ReadsTokens(const ModelConfig& c) { return c.task != Task::kCtc; }
bool HasHeads(const ModelConfig& c) { return c.HasAttention(); }
bool IsPair(const ModelConfig& c) { return c.arch == Arch::kSeq2seq; }
bool IsRotary(const ModelConfig& c) {
  return c.positions == Positions::kRotary;
}

// Keys of common sections that not every model with the section reads.
constexpr Condition kConditions[] = {
    {"vocab_size", ReadsTokens},
    {"tokenizer", ReadsTokens},
    {"n_heads", HasHeads},
    {"d_key", HasHeads},
    {"d_value", HasHeads},
    {"tied_head",
     [](const ModelConfig& c) {
       return c.task == Task::kLm || c.task == Task::kSeq2seq;
     }},
    {"n_classes",
     [](const ModelConfig& c) {
       return c.task == Task::kClassify || c.task == Task::kCtc;
     }},
    {"input_dim", [](const ModelConfig& c) { return c.task == Task::kCtc; }},
    {"n_decoder_layers", IsPair},
    {"cross_attention", IsPair},
    // A pattern names the mixers where there is one.
    {"attention", [](const ModelConfig& c) { return c.layers.empty(); }},
    {"position_combine",
     [](const ModelConfig& c) { return c.positions == Positions::kSinusoidal; }},
    {"max_positions",
     [](const ModelConfig& c) { return c.positions == Positions::kLearned; }},
    // The rotation is before softmax's products in any case.
    {"rotary_place",
     [](const ModelConfig& c) { return IsRotary(c) && c.UsesFeatureMap(); }},
    {"rotary_base", IsRotary},
    {"activation",
     [](const ModelConfig& c) {
       return c.feed_forward == FeedForwardKind::kMlp;
     }},
    {"bidirectional",
     [](const ModelConfig& c) {
       return c.arch == Arch::kLstm && c.task != Task::kLm;
     }},
};

bool IsCommon(std::string_view section) {
  for (const char* common :
       {"model", "layers", "positions", "norm", "feed_forward", "image",
        "recurrent", "convolution"}) {
    if (section == common) return true;
  }
  return false;
}

bool MixerReads(const MixerSpec& spec, const ModelConfig& layer,
                const ConfigField& field) {
  const std::string_view section = field.section;
  if (field.own()) return section == spec.family;
  if (std::none_of(spec.sections.begin(), spec.sections.end(),
                   [&](const char* one) { return section == one; })) {
    return false;
  }
  if (spec.reads == nullptr) return true;
  const std::vector<const char*> keys = spec.reads(layer);
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) {
    return std::string_view(field.name) == key;
  });
}

// A layer that a pattern gives another value does not read the model's.
bool LayerReads(const ModelConfig& finished, size_t entry,
                const ConfigField& field) {
  const ModelConfig view = LayerView(finished, static_cast<int64_t>(entry));
  if (!MixerReads(Spec(view.attention), view, field)) return false;
  if (finished.layers.empty()) return true;
  const LayerConfig& layer = finished.layers[entry];
  return std::none_of(
      layer.options.begin(), layer.options.end(),
      [&](const auto& option) { return option.first == field.name; });
}

}  // namespace

bool ReadsField(const ModelConfig& finished, const ConfigField& field) {
  if (IsCommon(field.section)) {
    if (!ReadsSection(finished, field.section)) return false;
    for (const Condition& condition : kConditions) {
      if (std::string_view(field.name) == condition.key) {
        return condition.read(finished);
      }
    }
    return true;
  }
  if (!finished.HasAttention()) return false;
  for (size_t i = 0; i < std::max<size_t>(1, finished.layers.size()); ++i) {
    if (LayerReads(finished, i, field)) return true;
  }
  if (finished.arch != Arch::kSeq2seq) return false;
  const ModelConfig cross = CrossView(finished);
  return MixerReads(Spec(cross.attention), cross, field);
}

}  // namespace tarn
