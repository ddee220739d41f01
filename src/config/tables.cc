#include "config/tables.h"

#include <cmath>

#include "config/feed_forward_form.h"
#include "config/fields.h"
#include "core/feature_map.h"
#include "core/json.h"
#include "core/overloaded.h"
#include "core/text.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;

// The value of a key that is not given; null where another key decides.
Json DefaultOf(const ConfigField& field) {
  const ModelConfig defaults;
  const bool derived = std::visit(
      Overloaded{[&](const IntegerField& f) {
                   return f.derived && defaults.*f.member == 0;
                 },
                 [&](const ChoiceField& f) { return f.get(defaults) < 0; },
                 [](const auto&) { return false; }},
      field.kind);
  return derived ? Json(nullptr) : Json::parse(ValueText(field, defaults));
}

// JSON has no infinities: they are texts.
Json Number(float value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void AddKind(const OwnKey& key, Json& row) {
  std::visit(Overloaded{[&](const IntegerKey& k) {
                          row["kind"] = "integer";
                          row["min"] = k.min;
                          row["max"] = k.max;
                          row["derived"] = false;
                        },
                        [&](const RealKey& k) {
                          row["kind"] = "real";
                          row["min"] = k.min;
                          row["max"] = k.max;
                        },
                        [&](const FlagKey&) { row["kind"] = "boolean"; },
                        [&](const WordKey& k) {
                          row["kind"] = "choice";
                          row["words"] = k.words;
                          row["derived"] = false;
                        }},
             key.type);
}

void AddKind(const ConfigField& field, Json& row) {
  std::visit(Overloaded{[&](const IntegerField& f) {
                          row["kind"] = "integer";
                          row["min"] = f.min;
                          row["max"] = f.max;
                          row["derived"] = f.derived;
                        },
                        [&](const RealField& f) {
                          row["kind"] = "real";
                          row["min"] = f.min;
                          row["max"] = f.max;
                        },
                        [&](const BoolField&) { row["kind"] = "boolean"; },
                        [&](const OwnField& f) { AddKind(*f.key, row); },
                        [&](const ChoiceField& f) {
                          row["kind"] = "choice";
                          row["words"] = Json::array();
                          for (const char* word : Words(f)) {
                            row["words"].push_back(word);
                          }
                          row["derived"] = f.derived;
                        }},
             field.kind);
}

}  // namespace

std::string FeatureMapTable() {
  Json table = Json::array();
  for (const FeatureMapTraits& row : kFeatureMaps) {
    table.push_back({{"name", row.name},
                     {"elementwise", row.elementwise},
                     {"signed", row.is_signed},
                     {"uses_omega", row.uses_omega()},
                     {"can_stabilise", row.can_stabilise},
                     {"pairs", row.pairs},
                     {"features_per_column", row.features_per_column},
                     {"constant_features", row.constant_features}});
  }
  return table.dump();
}

std::string ConfigFieldTable() {
  Json table = Json::array();
  for (const ConfigField& field : ConfigFields()) {
    Json row = {{"name", field.name},
                {"section", field.section},
                {"key", field.key()},
                {"help", field.help}};
    AddKind(field, row);
    row["default"] = DefaultOf(field);
    row["wanted"] = Wanted(field, /*finished=*/false);
    table.push_back(std::move(row));
  }
  return table.dump();
}

std::string MixerTable() {
  Json table = Json::array();
  for (const char* name : MixerNames()) {
    const MixerSpec& spec = Spec(MixerKind(name));
    std::vector<const char*> sections = spec.sections;
    sections.insert(sections.end(), spec.optional_sections.begin(),
                    spec.optional_sections.end());
    table.push_back(
        {{"name", name},
         {"family", spec.family},
         {"sections", sections},
         {"causal", spec.can.causal},
         {"bidirectional", spec.can.bidirectional},
         {"cross", spec.can.cross},
         {"recurrent", spec.can.recurrent},
         {"dropout", spec.can.dropout},
         {"rotary", spec.can.rotary},
         {"form", spec.form.empty() ? Json(nullptr) : Json::parse(spec.form)}});
  }
  return table.dump();
}

std::string StateTable(const ModelConfig& finished) {
  Json layers = Json::array();
  const int64_t count = finished.HasAttention() ? finished.n_layers : 0;
  for (int64_t i = 0; i < count; ++i) {
    const ModelConfig view = LayerView(finished, i);
    Json tensors = Json::array();
    for (const StateTensor& tensor : LayerState(view)) {
      tensors.push_back({{"name", tensor.name},
                         {"shape", tensor.shape},
                         {"initial", Number(tensor.initial)},
                         {"grows", tensor.grows}});
    }
    layers.push_back(std::move(tensors));
  }
  return layers.dump();
}

std::string LayerViewText(const ModelConfig& finished, int64_t i) {
  const ModelConfig view = LayerView(finished, i);
  const auto of_mixer = [](const ModelConfig& mixer) {
    Json json = Json::parse(FieldsText(mixer));
    const MixerSpec& spec = Spec(mixer.attention);
    if (spec.passed != nullptr && spec.passed(mixer) > 0) {
      json["reads_passed"] = mixer.reads_passed;
    }
    return json;
  };
  Json json = of_mixer(view);
  for (const ModelConfig& branch : view.branches) {
    json["branches"].push_back(of_mixer(branch));
  }
  return json.dump();
}

}  // namespace tarn
