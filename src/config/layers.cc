// The pattern of mixed layers: as text, in normal form, and what one layer
// sees.
#include <algorithm>

#include "config/fields.h"
#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// The field an entry of the pattern may set: a key of a section its mixer
// reads, or the feed-forward part.
const ConfigField* OptionField(AttentionKind kind, std::string_view key) {
  const ConfigField* field = FindField(key);
  if (field == nullptr || key == "feed_forward") return field;
  const MixerSpec& spec = Spec(kind);
  for (const auto* sections : {&spec.sections, &spec.optional_sections}) {
    for (const char* section : *sections) {
      if (std::string_view(section) == field->section) return field;
    }
  }
  return nullptr;
}

std::string OptionsWanted(AttentionKind kind) {
  std::string keys;
  for (const ConfigField& field : ConfigFields()) {
    if (OptionField(kind, field.name) == nullptr) continue;
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
ModelConfig BaseOf(const ModelConfig& config, AttentionKind kind) {
  ModelConfig base = config;
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

void Apply(const LayerConfig& layer, ModelConfig& config) {
  config.attention = layer.attention;
  for (const auto& [key, text] : layer.options) {
    const ConfigField* field = OptionField(layer.attention, key);
    if (field == nullptr) {
      RefuseKey("layers", OptionsWanted(layer.attention), Quoted(key));
    }
    if (!SetFromText(*field, text, config) || !InRange(*field, config)) {
      RefuseKey("layers", StrCat(key, " ", Wanted(*field, false)),
                Quoted(text));
    }
  }
}

AttentionKind MixerFromText(std::string_view name) {
  const std::vector<const char*> names = MixerNames();
  std::string known;
  for (const char* word : names) {
    if (name == word) return MixerKind(name);
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  RefuseKey("layers", "mixers out of " + known, Quoted(name));
}

// Parts of a text between separators; "a,,b" has an empty one.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

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
    SortOptions(layer);
    const ModelConfig base = BaseOf(config, layer.attention);
    ModelConfig view = base;
    Apply(layer, view);  // checks names, texts and ranges
    // A value equal to the model's own is not kept as an option.
    std::erase_if(layer.options, [&](const auto& option) {
      const ConfigField& field = *FindField(option.first);
      return ValueText(field, view) == ValueText(field, base);
    });
    // One text per value: the one that ConfigToJson writes.
    for (auto& [key, text] : layer.options) {
      text = ValueText(*FindField(key), view);
      if (text.front() == '"') text = text.substr(1, text.size() - 2);
    }
  }
  const LayerConfig first = config.layers.front();
  config.attention = first.attention;
  if (std::all_of(config.layers.begin(), config.layers.end(),
                  [&](const LayerConfig& layer) { return layer == first; })) {
    config.layers.clear();
    Apply(first, config);
  }
}

ModelConfig LayerView(const ModelConfig& config, int64_t i) {
  ModelConfig view = config;
  if (!config.layers.empty()) {
    const LayerConfig& layer =
        config.layers[static_cast<size_t>(i) % config.layers.size()];
    view = BaseOf(config, layer.attention);
    view.layers.clear();
    Apply(layer, view);
    DeriveMixers(view);
  }
  return view;
}

ModelConfig CrossView(const ModelConfig& config) {
  ModelConfig view = config;
  view.layers.clear();
  view.attention = config.cross_attention;
  return view;
}

std::vector<AttentionKind> MixersOf(const ModelConfig& config) {
  if (!config.HasAttention()) return {};
  if (config.layers.empty()) return {config.attention};
  std::vector<AttentionKind> kinds;
  for (const LayerConfig& layer : config.layers) {
    if (std::find(kinds.begin(), kinds.end(), layer.attention) == kinds.end()) {
      kinds.push_back(layer.attention);
    }
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
    text += (text.empty() ? "" : ",") + std::string(Name(layer.attention));
    for (const auto& [key, value] : layer.options) {
      text += StrCat(":", key, "=", value);
    }
  }
  return text;
}

std::vector<LayerConfig> LayersFromText(std::string_view text) {
  std::vector<LayerConfig> layers;
  for (const std::string_view entry : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(entry, ':');
    LayerConfig layer{MixerFromText(parts.front()), {}};
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t equals = parts[i].find('=');
      if (equals == parts[i].npos ||
          OptionField(layer.attention, parts[i].substr(0, equals)) == nullptr) {
        RefuseKey("layers", OptionsWanted(layer.attention) + ", as key=value",
                  Quoted(parts[i]));
      }
      layer.options.emplace_back(parts[i].substr(0, equals),
                                 parts[i].substr(equals + 1));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace tarn
