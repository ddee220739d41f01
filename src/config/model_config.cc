#include "config/model_config.h"

#include <algorithm>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

void CheckRanges(const ModelConfig& config) {
  for (const ConfigField& field : ConfigFields()) {
    if (InRange(field, config)) continue;
    // An enum outside its words has no text.
    const auto* own = std::get_if<OwnField>(&field.kind);
    const bool choice = own != nullptr
                            ? std::holds_alternative<WordKey>(own->key->type)
                            : std::holds_alternative<ChoiceField>(field.kind);
    RefuseKey(field.name, Wanted(field, false),
              choice ? "a value outside the enum" : ValueText(field, config));
  }
}

void DeriveHeads(ModelConfig& config) {
  if (config.d_key == 0 || config.d_value == 0) {
    if (config.d_model % config.n_heads != 0 && config.HasAttention()) {
      RefuseKey("n_heads",
                StrCat("a divisor of d_model = ", config.d_model,
                       " (or d_key and d_value given)"),
                StrCat(config.n_heads));
    }
    // A model without heads does not use it, but it is a size of the file.
    const int64_t width = std::max<int64_t>(1, config.d_model / config.n_heads);
    if (config.d_key == 0) config.d_key = width;
    if (config.d_value == 0) config.d_value = width;
  }
  if (config.d_ff == 0) config.d_ff = 4 * config.d_model;
}

// The layers' mixer where they have one that reads a memory, else the one that
// does so for others. What models without attention have is never read.
AttentionKind DerivedCross(const ModelConfig& config) {
  const std::vector<AttentionKind> kinds = MixersOf(config);
  if (kinds.empty()) return AttentionKind{};
  if (kinds.size() == 1 && Spec(kinds[0]).can.cross) return kinds[0];
  for (const char* name : MixerNames()) {
    if (Spec(MixerKind(name)).can.cross_for_others) return MixerKind(name);
  }
  RefuseKey("cross_attention", "a mixer, as none is the model's choice",
            "none");
}

void DeriveTask(ModelConfig& config) {
  if (config.task == Task::kDerived) {
    config.task = config.arch == Arch::kEncoder   ? Task::kClassify
                  : config.arch == Arch::kSeq2seq ? Task::kSeq2seq
                                                  : Task::kLm;
  }
  if (config.cross_attention == kDerivedMixer) {
    config.cross_attention = DerivedCross(config);
  }
  if (config.arch == Arch::kSeq2seq && config.n_decoder_layers == 0) {
    config.n_decoder_layers = config.n_layers;
  }
  constexpr int64_t kMixtures = 10;  // as in the paper's image models
  if (config.task == Task::kImage && config.n_mixtures == 0) {
    config.n_mixtures = kMixtures;
  }
}

// A key that no part of the model reads gets its default, so that files that
// leave it out are complete.
void ResetUnread(ModelConfig& config) {
  const ModelConfig defaults;
  for (const ConfigField& field : ConfigFields()) {
    // A wrong size of an image is refused, not corrected.
    if (std::string_view(field.section) == "image") continue;
    if (!ReadsSection(config, field.section))
      CopyField(field, defaults, config);
  }
}

}  // namespace

bool GivesKeysOf(const ModelConfig& config, std::string_view section) {
  return std::any_of(config.own.begin(), config.own.end(),
                     [&](const auto& own) {
                       const ConfigField* field = FindField(own.first);
                       return field != nullptr && field->section == section;
                     });
}

bool ReadsSection(const ModelConfig& finished, std::string_view section) {
  if (section == "model") return true;
  if (section == "image") return finished.task == Task::kImage;
  if (section == "recurrent") {
    return finished.arch == Arch::kRnn || finished.arch == Arch::kLstm;
  }
  if (section == "convolution") return finished.arch == Arch::kCnn;
  if (!finished.HasAttention()) return false;
  if (section == "rotary_scaling") {
    return finished.positions == Positions::kRotary &&
           finished.rotary_scaling != RotaryScalingKind::kNone;
  }
  if (section == "block") {
    return finished.embedding_factor != 1.0 ||
           finished.residual_factor != 1.0 || finished.logit_factor != 1.0 ||
           finished.logit_softcap != 0.0 || finished.norm_offset != 0.0 ||
           finished.branch_factor != 1.0 || finished.input_norm ||
           !finished.head_bias || finished.parallel_residual ||
           finished.feed_forward_bias != FeedForwardBias::kAuto;
  }
  for (const char* common : {"layers", "positions", "norm", "feed_forward"}) {
    if (section == common) return true;
  }
  for (const FeedForwardKind kind : FeedForwardsOf(finished)) {
    const FeedForwardSpec& spec = Spec(kind);
    for (const OwnKey& key : spec.keys) {
      if (section == (key.section.empty() ? spec.name : key.section)) {
        return true;
      }
    }
  }
  for (const AttentionKind kind : AllMixersOf(finished)) {
    const MixerSpec& spec = Spec(kind);
    const auto among = [&](const std::vector<const char*>& sections) {
      return std::any_of(sections.begin(), sections.end(),
                         [&](const char* read) { return section == read; });
    };
    if (among(spec.sections)) return true;
    if (among(spec.optional_sections) && GivesKeysOf(finished, section)) {
      return true;
    }
  }
  return false;
}

std::vector<AttentionKind> AllMixersOf(const ModelConfig& config) {
  std::vector<AttentionKind> kinds = MixersOf(config);
  if (config.arch != Arch::kSeq2seq) return kinds;
  const AttentionKind cross = CrossView(config).attention;
  if (std::find(kinds.begin(), kinds.end(), cross) == kinds.end()) {
    kinds.push_back(cross);
  }
  return kinds;
}

void DeriveMixers(ModelConfig& config) {
  for (const AttentionKind kind : AllMixersOf(config)) {
    const MixerSpec& spec = Spec(kind);
    if (spec.derive != nullptr) spec.derive(config);
  }
}

bool Rotates(const ModelConfig& view) {
  const MixerSpec& spec = Spec(view.attention);
  if (!spec.can.rotary) return false;
  return spec.rotate_key == nullptr || KeyOf<bool>(view, spec.rotate_key);
}

// Costs a view of each layer only where a layer can have a base.
std::vector<double> OwnRotaryBases(const ModelConfig& config) {
  std::vector<double> bases;
  const auto has_key = [](AttentionKind kind) {
    return Spec(kind).rotary_base_key != nullptr;
  };
  const std::vector<AttentionKind> kinds = MixersOf(config);
  if (config.positions != Positions::kRotary ||
      std::none_of(kinds.begin(), kinds.end(), has_key)) {
    return bases;
  }
  for (size_t i = 0; i < std::max<size_t>(1, config.layers.size()); ++i) {
    const ModelConfig layer = LayerView(config, static_cast<int64_t>(i));
    for (const ModelConfig& view : MixerViews(layer)) {
      if (!has_key(view.attention) || !Rotates(view)) continue;
      const double base =
          KeyOf<double>(view, Spec(view.attention).rotary_base_key);
      if (base == 0 ||
          std::find(bases.begin(), bases.end(), base) != bases.end()) {
        continue;
      }
      bases.push_back(base);
    }
  }
  return bases;
}

int64_t ModelConfig::RotaryWidth() const {
  const auto width = [](const ModelConfig& layer, const MixerSpec& spec) {
    const char* key = spec.rotary_key;
    const int64_t given = key != nullptr ? KeyOf<int64_t>(layer, key) : 0;
    return given > 0 ? given : layer.d_key;
  };
  for (size_t i = 0; i < std::max<size_t>(1, layers.size()); ++i) {
    const int64_t layer = static_cast<int64_t>(i);
    const AttentionKind kind = layers.empty() ? attention : layers[i].attention;
    if (!Spec(kind).can.rotary) continue;
    for (const ModelConfig& view : MixerViews(LayerView(*this, layer))) {
      const MixerSpec& spec = Spec(view.attention);
      if (Rotates(view)) return width(view, spec);
    }
  }
  return d_key;
}

void CopyTrainingKeys(const ModelConfig& from, ModelConfig& to) {
  to.dropout = from.dropout;
  for (const ConfigField& field : ConfigFields()) {
    const auto* own = std::get_if<OwnField>(&field.kind);
    if (own != nullptr && own->key->training) CopyField(field, from, to);
  }
}

ModelConfig Finished(ModelConfig config) {
  FinishConfig(config);
  return config;
}

void FinishConfig(ModelConfig& config) {
  ModelConfig finished = config;
  finished.branches.clear();
  finished.reads_passed = false;
  finished.first_passing = -1;
  finished.rotary_bases.clear();
  CheckRanges(finished);
  if (finished.HasAttention()) DeriveHeads(finished);  // layers refer to them
  NormaliseLayers(finished);
  DeriveTask(finished);
  CheckStrictKeys(finished);
  ResetUnread(finished);
  DeriveHeads(finished);
  DeriveMixers(finished);
  CheckRanges(finished);
  finished.first_passing = FirstPassing(finished);
  finished.rotary_bases = OwnRotaryBases(finished);
  CheckCombinations(finished);
  CheckTotals(finished);
  config = finished;
}

void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value) {
  if (key == "layers") {
    config.layers = LayersFromText(value);
    return;
  }
  const ConfigField* field = FindField(key);
  if (field == nullptr) {
    throw ArgumentError("config", "a key of config.json", Quoted(key));
  }
  ModelConfig changed = config;
  if (!SetFromText(*field, value, changed) || !InRange(*field, changed)) {
    RefuseKey(field->name, Wanted(*field, false), Quoted(value));
  }
  config = changed;
}

std::vector<ConfigKey> ConfigKeys() {
  std::vector<ConfigKey> keys;
  for (const ConfigField& field : ConfigFields()) {
    keys.push_back({field.name, field.help, Wanted(field, false),
                    DefaultText(field), MetavarOf(field)});
  }
  keys.push_back({"layers",
                  "mixers of the layers, repeated over the depth: "
                  "linear,full or linear,local:local_context=64 or mamba2+full",
                  "mixers of --attention, with options after colons", "",
                  "A[,B...]"});
  return keys;
}

}  // namespace tarn
