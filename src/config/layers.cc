// The pattern of mixed layers: as text, in normal form, and what one layer
// sees.
#include <algorithm>
#include <span>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// What a key of the pattern belongs to: a layer with one mixer, a layer with
// parallel ones, or one of these.
enum class Owner { kLayer, kParallel, kBranch };

Owner OwnerOf(AttentionKind kind) {
  return Spec(kind).branches.empty() ? Owner::kLayer : Owner::kParallel;
}

bool IsAmong(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

constexpr std::string_view kHeads[] = {"n_heads", "d_key", "d_value"};

// The keys of a layer around its mixer: of its other part, and where its norms
// are.
bool IsOfWholeLayer(std::string_view key) {
  constexpr std::string_view kKeys[] = {"feed_forward", "d_ff", "norm"};
  return IsAmong(kKeys, key);
}

// The field that an entry may set: a key of a section that its mixer reads, a
// size of its heads, or a key of the layer around it.
const ConfigField* OptionField(AttentionKind kind, Owner owner,
                               std::string_view key) {
  const ConfigField* field = FindField(key);
  if (field == nullptr) return nullptr;
  if (IsOfWholeLayer(key)) return owner == Owner::kBranch ? nullptr : field;
  if (owner == Owner::kParallel) return nullptr;
  if (key == "branch_factor") return owner == Owner::kBranch ? field : nullptr;
  if (IsAmong(kHeads, key)) return field;
  const MixerSpec& spec = Spec(kind);
  for (const auto* sections : {&spec.sections, &spec.optional_sections}) {
    for (const char* section : *sections) {
      if (std::string_view(section) == field->section) return field;
    }
  }
  return nullptr;
}

std::string OptionsWanted(AttentionKind kind, Owner owner) {
  std::string keys;
  for (const ConfigField& field : ConfigFields()) {
    if (OptionField(kind, owner, field.name) == nullptr) continue;
    keys += (keys.empty() ? "" : ", ") + std::string(field.name);
  }
  return StrCat("the keys of mixer '", Name(kind), "': ", keys);
}

bool ListsSection(const std::vector<const char*>& sections,
                  std::string_view section) {
  return std::any_of(sections.begin(), sections.end(),
                     [&](const char* one) { return section == one; });
}

// The model's keys as a layer of this mixer begins with them. A section that is
// optional to the mixer belongs to those mixers of the model that always read
// it, where there are such: then only the layer's own options reach the layer.
// It has no pattern of its own.
ModelConfig BaseOf(const ModelConfig& config, AttentionKind kind) {
  ModelConfig base = config;
  base.layers.clear();
  if (base.own.empty()) return base;
  const std::vector<AttentionKind> kinds = MixersOf(config);
  std::erase_if(base.own, [&](const auto& own) {
    const ConfigField* field = FindField(own.first);
    return field != nullptr &&
           ListsSection(Spec(kind).optional_sections, field->section) &&
           std::any_of(kinds.begin(), kinds.end(), [&](AttentionKind other) {
             return ListsSection(Spec(other).sections, field->section);
           });
  });
  return base;
}

// Brings options into the order of the table. Refuses a key given twice.
void SortOptions(LayerConfig& layer) {
  const auto place = [](const std::pair<std::string, std::string>& option) {
    size_t index = 0;
    for (const ConfigField& field : ConfigFields()) {
      if (option.first == field.name) break;
      ++index;
    }
    return index;
  };
  std::stable_sort(
      layer.options.begin(), layer.options.end(),
      [&](const auto& a, const auto& b) { return place(a) < place(b); });
  for (size_t i = 1; i < layer.options.size(); ++i) {
    if (layer.options[i].first != layer.options[i - 1].first) continue;
    RefuseKey("layers", "a key once in an entry",
              Quoted(layer.options[i].first) + " twice");
  }
}

// Whether FinishConfig would work the value out.
bool IsUnset(const ConfigField& field, const ModelConfig& config) {
  const auto* size = std::get_if<IntegerField>(&field.kind);
  return size != nullptr && size->derived && config.*size->member == 0;
}

// Sets the keys of an entry, or of one of its branches, in a configuration.
void Apply(const LayerConfig& layer, Owner owner, ModelConfig& config) {
  config.attention = layer.attention;
  for (const auto& [key, text] : layer.options) {
    const ConfigField* field = OptionField(layer.attention, owner, key);
    if (field == nullptr) {
      RefuseKey("layers", OptionsWanted(layer.attention, owner), Quoted(key));
    }
    // A layer has no size to work out: those of the model are known by then.
    if (!SetFromText(*field, text, config) || !InRange(*field, config) ||
        IsUnset(*field, config)) {
      RefuseKey("layers", StrCat(key, " ", Wanted(*field, true)), Quoted(text));
    }
  }
}

// Checks the options of an entry or a branch; those that differ from the
// model's own stay, in the order of the table and with one text a value.
void NormaliseOptions(const ModelConfig& config, Owner owner,
                      LayerConfig& layer) {
  SortOptions(layer);
  const ModelConfig base = BaseOf(config, layer.attention);
  ModelConfig view = base;
  Apply(layer, owner, view);  // checks names, texts and ranges
  std::erase_if(layer.options, [&](const auto& option) {
    const ConfigField& field = *FindField(option.first);
    return ValueText(field, view) == ValueText(field, base);
  });
  // The text that ConfigToJson writes.
  for (auto& [key, text] : layer.options) {
    text = ValueText(*FindField(key), view);
    if (text.front() == '"') text = text.substr(1, text.size() - 2);
  }
}

void NormaliseBranches(const ModelConfig& config, LayerConfig& layer) {
  std::vector<AttentionKind> given;
  for (LayerConfig& branch : layer.branches) {
    NormaliseOptions(config, Owner::kBranch, branch);
    given.push_back(branch.attention);
  }
  if (given.empty()) return;
  if (given != Spec(layer.attention).branches) {
    RefuseKey("layers", StrCat("the mixers of ", Name(layer.attention)),
              ParallelName(given));
  }
  if (std::all_of(layer.branches.begin(), layer.branches.end(),
                  [](const LayerConfig& one) { return one.options.empty(); })) {
    layer.branches.clear();
  }
}

// What the mixers of a layer with parallel ones see, `layer` its entry.
std::vector<ModelConfig> BranchViews(const ModelConfig& config,
                                     const LayerConfig& layer) {
  std::vector<ModelConfig> views;
  for (const AttentionKind kind : Spec(layer.attention).branches) {
    ModelConfig& view = views.emplace_back(BaseOf(config, kind));
    view.attention = kind;
    // The layer's part, and what that carries, belong to the layer.
    view.feed_forward = FeedForwardKind{};
    if (!layer.branches.empty()) {
      Apply(layer.branches[views.size() - 1], Owner::kBranch, view);
    }
    DeriveMixers(view);
  }
  return views;
}

AttentionKind MixerFromText(std::string_view name) {
  if (const auto kind = FindMixer(name)) return *kind;
  RefuseKey("layers", "mixers out of " + MixersWanted(), Quoted(name));
}

// "mixer:key=value:..." of one mixer, whose own keys go to `layer` and those of
// the layer around it to `whole`.
void ReadMixer(std::string_view text, Owner owner, LayerConfig& layer,
               LayerConfig& whole) {
  const std::vector<std::string_view> parts = Split(text, ':');
  layer.attention = MixerFromText(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    const std::string_view key = parts[i].substr(0, equals);
    const bool of_layer = IsOfWholeLayer(key);
    if (equals == parts[i].npos ||
        (!of_layer && OptionField(layer.attention, owner, key) == nullptr)) {
      RefuseKey("layers",
                OptionsWanted(layer.attention, owner) + ", as key=value",
                Quoted(parts[i]));
    }
    (of_layer ? whole : layer)
        .options.emplace_back(key, parts[i].substr(equals + 1));
  }
}

// The parts of an entry between '+' signs: one in a number, as 1e+06, is
// followed by a digit.
std::vector<std::string_view> SplitBranches(std::string_view entry) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t i = 0; i + 1 < entry.size(); ++i) {
    const bool number = entry[i + 1] >= '0' && entry[i + 1] <= '9';
    if (entry[i] != '+' || number) continue;
    parts.push_back(entry.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(entry.substr(begin));
  return parts;
}

LayerConfig EntryFromText(std::string_view text) {
  const std::vector<std::string_view> parts = SplitBranches(text);
  LayerConfig layer;
  if (parts.size() == 1) {
    ReadMixer(parts.front(), Owner::kLayer, layer, layer);
    return layer;
  }
  std::vector<AttentionKind> kinds;
  for (const std::string_view part : parts) {
    ReadMixer(part, Owner::kBranch, layer.branches.emplace_back(), layer);
    kinds.push_back(layer.branches.back().attention);
  }
  layer.attention = MixerFromText(ParallelName(kinds));
  return layer;
}

void AddOptions(const LayerConfig& layer, std::string& text) {
  for (const auto& [key, value] : layer.options) {
    text += StrCat(":", key, "=", value);
  }
}

}  // namespace

void NormaliseLayers(ModelConfig& config) {
  if (config.layers.empty()) return;
  if (!config.HasAttention()) {
    RefuseKey("layers", StrCat("none for arch '", Name(config.arch), "'"),
              LayersText(config));
  }
  if (static_cast<int64_t>(config.layers.size()) > config.n_layers) {
    RefuseKey("layers",
              StrCat("at most n_layers = ", config.n_layers, " entries"),
              StrCat(config.layers.size()));
  }
  for (LayerConfig& layer : config.layers) {
    NormaliseOptions(config, OwnerOf(layer.attention), layer);
    NormaliseBranches(config, layer);
  }
  const LayerConfig first = config.layers.front();
  config.attention = first.attention;
  if (!std::all_of(config.layers.begin(), config.layers.end(),
                   [&](const LayerConfig& layer) { return layer == first; })) {
    return;
  }
  // The model's own keys cannot say what one of parallel mixers differs in, and
  // cross attention reads them too.
  const bool own = config.arch == Arch::kSeq2seq &&
                   std::any_of(first.options.begin(), first.options.end(),
                               [](const auto& option) {
                                 return IsAmong(kHeads, option.first);
                               });
  config.layers.resize(own || !first.branches.empty() ? 1 : 0);
  if (config.layers.empty()) Apply(first, OwnerOf(first.attention), config);
}

namespace {

bool Passes(const ModelConfig& view) {
  const MixerSpec& spec = Spec(view.attention);
  return spec.passed != nullptr && spec.passed(view) > 0;
}

ModelConfig ViewAlone(const ModelConfig& config, int64_t i) {
  ModelConfig view = config;
  LayerConfig layer = {config.attention, {}};
  if (!config.layers.empty()) {
    layer = config.layers[static_cast<size_t>(i) % config.layers.size()];
    view = BaseOf(config, layer.attention);
    Apply(layer, OwnerOf(layer.attention), view);
    DeriveMixers(view);
  }
  view.branches = BranchViews(config, layer);
  return view;
}

}  // namespace

int64_t FirstPassing(const ModelConfig& config) {
  const std::vector<AttentionKind> kinds = MixersOf(config);
  if (std::none_of(kinds.begin(), kinds.end(), [](AttentionKind kind) {
        return Spec(kind).passed != nullptr;
      })) {
    return -1;
  }
  // The pattern has all mixers in its first period.
  const int64_t entries =
      std::max<int64_t>(1, static_cast<int64_t>(config.layers.size()));
  for (int64_t i = 0; i < entries; ++i) {
    const std::vector<ModelConfig> views = MixerViews(ViewAlone(config, i));
    if (std::any_of(views.begin(), views.end(), Passes)) return i;
  }
  return -1;
}

ModelConfig LayerView(const ModelConfig& config, int64_t i) {
  ModelConfig view = ViewAlone(config, i);
  if (config.first_passing < 0 || i < config.first_passing) return view;
  bool passed = i > config.first_passing;
  const auto mark = [&](ModelConfig& mixer) {
    if (!Passes(mixer)) return;
    mixer.reads_passed = passed;
    passed = true;
  };
  if (view.branches.empty()) mark(view);
  for (ModelConfig& branch : view.branches) mark(branch);
  return view;
}

bool ModelConfig::HasPlainSums() const {
  const auto has_own_place = [](const LayerConfig& layer) {
    return std::any_of(
        layer.options.begin(), layer.options.end(),
        [](const auto& option) { return option.first == "norm"; });
  };
  return (norm == Norm::kPost || norm == Norm::kPre) &&
         residual_factor == 1.0 && !parallel_residual &&
         std::none_of(layers.begin(), layers.end(), has_own_place);
}

ModelConfig CrossView(const ModelConfig& config) {
  ModelConfig view = config;
  view.layers.clear();
  view.attention = config.cross_attention;
  return view;
}

std::vector<AttentionKind> MixersOf(const ModelConfig& config) {
  if (!config.HasAttention()) return {};
  std::vector<AttentionKind> kinds;
  const auto add = [&](AttentionKind kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(kind);
    }
  };
  const auto add_all = [&](AttentionKind kind) {
    const std::vector<AttentionKind>& branches = Spec(kind).branches;
    if (branches.empty()) add(kind);
    for (const AttentionKind branch : branches) add(branch);
  };
  if (config.layers.empty()) add_all(config.attention);
  std::vector<AttentionKind> seen;  // parallel mixers as one
  for (const LayerConfig& layer : config.layers) {
    if (std::find(seen.begin(), seen.end(), layer.attention) != seen.end()) {
      continue;
    }
    seen.push_back(layer.attention);
    add_all(layer.attention);
  }
  return kinds;
}

std::vector<FeedForwardKind> FeedForwardsOf(const ModelConfig& config) {
  if (!config.HasAttention()) return {};
  std::vector<FeedForwardKind> kinds;
  const auto add = [&](FeedForwardKind kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(kind);
    }
  };
  if (config.layers.empty()) add(config.feed_forward);
  for (const LayerConfig& layer : config.layers) {
    FeedForwardKind kind = config.feed_forward;
    for (const auto& [key, text] : layer.options) {
      if (key == "feed_forward") kind = FeedForwardOf(text);
    }
    add(kind);
  }
  return kinds;
}

std::string LayersText(const ModelConfig& config) {
  if (config.layers.empty()) return Name(config.attention);
  std::string text;
  for (const LayerConfig& layer : config.layers) {
    text += text.empty() ? "" : ",";
    if (layer.branches.empty()) text += Name(layer.attention);
    for (size_t i = 0; i < layer.branches.size(); ++i) {
      text +=
          (i == 0 ? "" : "+") + std::string(Name(layer.branches[i].attention));
      AddOptions(layer.branches[i], text);
    }
    AddOptions(layer, text);
  }
  return text;
}

std::vector<LayerConfig> LayersFromText(std::string_view text) {
  std::vector<LayerConfig> layers;
  for (const std::string_view entry : Split(text, ',')) {
    layers.push_back(EntryFromText(entry));
  }
  return layers;
}

}  // namespace tarn
