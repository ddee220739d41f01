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

// Whether some layer's feed-forward part reads the key of that name.
bool ReadsActivation(const ModelConfig& c) {
  for (size_t i = 0; i < std::max<size_t>(1, c.layers.size()); ++i) {
    const ModelConfig view = LayerView(c, static_cast<int64_t>(i));
    if (Spec(view.feed_forward).activation) return true;
  }
  return false;
}

// Whether some layer's feed-forward part may have biases.
bool ReadsBias(const ModelConfig& c) {
  const std::vector<FeedForwardKind> kinds = FeedForwardsOf(c);
  return std::any_of(kinds.begin(), kinds.end(), [](FeedForwardKind kind) {
    return Spec(kind).takes_biases;
  });
}

constexpr const char* kRotaryPlace = "rotary_place";

bool Names(const std::vector<const char*>& keys, std::string_view name) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const char* key) { return name == key; });
}

// Whether a mixer of the model says that it reads the place of the rotation:
// for the others it is before their products in any case.
bool ReadsRotaryPlace(const ModelConfig& c) {
  const std::vector<AttentionKind> kinds = AllMixersOf(c);
  return std::any_of(kinds.begin(), kinds.end(), [&](AttentionKind kind) {
    const MixerSpec& spec = Spec(kind);
    return spec.reads != nullptr && Names(spec.reads(c), kRotaryPlace);
  });
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
     [](const ModelConfig& c) {
       return c.positions == Positions::kSinusoidal;
     }},
    {"max_positions",
     [](const ModelConfig& c) { return c.positions == Positions::kLearned; }},
    {kRotaryPlace,
     [](const ModelConfig& c) { return IsRotary(c) && ReadsRotaryPlace(c); }},
    {"rotary_base", IsRotary},
    {"embedding_factor", ReadsTokens},
    {"feed_forward_bias", ReadsBias},
    {"branch_factor",
     [](const ModelConfig& c) {
       const auto parallel = [](AttentionKind kind) {
         return !Spec(kind).branches.empty();
       };
       if (c.layers.empty()) return parallel(c.attention);
       return std::any_of(
           c.layers.begin(), c.layers.end(),
           [&](const LayerConfig& layer) { return parallel(layer.attention); });
     }},
    {"activation", ReadsActivation},
    {"bidirectional",
     [](const ModelConfig& c) {
       return c.arch == Arch::kLstm && c.task != Task::kLm;
     }},
};

bool IsCommon(std::string_view section) {
  for (const char* common :
       {"model", "layers", "positions", "norm", "feed_forward", "image",
        "recurrent", "convolution", "rotary_scaling", "block"}) {
    if (section == common) return true;
  }
  return false;
}

bool MixerReads(const MixerSpec& spec, const ModelConfig& layer,
                const ConfigField& field) {
  const bool reads = Names(spec.sections, field.section) ||
                     (Names(spec.optional_sections, field.section) &&
                      GivesKeysOf(layer, field.section));
  return reads &&
         (spec.reads == nullptr || Names(spec.reads(layer), field.name));
}

// The keys of a part's own sections are read by every layer that has it.
bool PartReads(const FeedForwardSpec& spec, const ConfigField& field) {
  return std::any_of(spec.keys.begin(), spec.keys.end(),
                     [&](const OwnKey& key) { return key.name == field.name; });
}

bool Sets(const LayerConfig& layer, const ConfigField& field) {
  return std::any_of(
      layer.options.begin(), layer.options.end(),
      [&](const auto& option) { return option.first == field.name; });
}

// A layer that a pattern gives another value does not read the model's.
bool LayerReads(const ModelConfig& finished, size_t entry,
                const ConfigField& field) {
  const ModelConfig layer = LayerView(finished, static_cast<int64_t>(entry));
  if (PartReads(Spec(layer.feed_forward), field)) return true;
  const LayerConfig given = finished.layers.empty()
                                ? LayerConfig{layer.attention, {}}
                                : finished.layers[entry];
  const std::vector<ModelConfig> views = MixerViews(layer);
  for (size_t i = 0; i < views.size(); ++i) {
    const LayerConfig& own = given.branches.empty() ? given : given.branches[i];
    if (MixerReads(Spec(views[i].attention), views[i], field) &&
        !Sets(own, field)) {
      return true;
    }
  }
  return false;
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
