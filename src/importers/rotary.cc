// Rotary positions of published models: rope_parameters of transformers 5, of
// the model or of each type of layers, and the keys of transformers 4.
#include <cmath>

#include "core/text.h"
#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// transformers rounds the number of channels down.
void ReadRotatedPart(PublishedConfig& from, PublishedConfig& rope, double part,
                     ModelConfig& config) {
  constexpr const char* kKey = "partial_rotary_factor";
  part = from.Real(kKey, part);
  PublishedConfig& giver = rope.Has(kKey) ? rope : from;
  part = rope.Real(kKey, part);
  const double width = std::floor(static_cast<double>(config.d_key) * part);
  if (!(part > 0 && part <= 1) || width < 2 || std::fmod(width, 2) != 0) {
    giver.Refuse(kKey,
                 StrCat("a number up to 1 that makes an even number of the ",
                        config.d_key, " channels rotate"),
                 StrCat(part));
  }
  if (part < 1) SetKey(config, "rotary_width", static_cast<int64_t>(width));
}

// The factor of cosines and sines under yarn; 0: the usual one.
double YarnMagnitude(PublishedConfig& kind, double factor) {
  const double given = kind.Real("attention_factor", 0.0);
  const double scale = kind.Real("mscale", 0.0);
  const double all = kind.Real("mscale_all_dim", 0.0);
  if (given != 0 || scale == 0 || all == 0 || factor <= 1) return given;
  const double log = 0.1 * std::log(factor);
  return (scale * log + 1) / (all * log + 1);
}

// The length of the training's texts. A key of the model outranks that of its
// frequencies.
int64_t OriginalPositions(PublishedConfig& from, PublishedConfig& kind,
                          bool of_model, int64_t positions) {
  constexpr const char* kKey = "original_max_position_embeddings";
  constexpr const char* kLast = "max_position_embeddings";
  if (of_model && from.Has(kKey)) {
    kind.Ignore({kKey});
    return from.Integer(kKey, 1, kMostSize);
  }
  if (kind.Has(kKey)) return kind.Integer(kKey, 1, kMostSize);
  kind.Ignore({kKey});
  return positions == 0 ? from.Integer(kLast, 1, kMostSize)
                        : from.Integer(kLast, 1, kMostSize, positions);
}

// of_model: whether the keys are the model's, not those of a type of layers,
// where transformers does not look for `truncate`.
void ReadScaling(PublishedConfig& from, PublishedConfig& kind, bool of_model,
                 int64_t positions, ModelConfig& config) {
  const std::string old = kind.Word("type", "default");
  const std::string type = kind.Word("rope_type", old);
  if (type == "default") return;
  if (type == "proportional" && !of_model) {
    config.rotary_scaling = RotaryScalingKind::kProportional;
    config.rotary_factor = kind.Real("factor", 1.0);
    config.rotary_low = kind.Real("partial_rotary_factor", 1.0);
    return;
  }
  if (type != "linear" && type != "llama3" && type != "yarn") {
    kind.Refuse("rope_type",
                type == "longrope" || type == "su" || type == "dynamic"
                    ? "'default', 'linear', 'llama3' or 'yarn', as other "
                      "frequencies change with the length of the text"
                    : "'default', 'linear', 'llama3' or 'yarn'",
                Quoted(type));
  }
  config.rotary_factor = kind.Real("factor");
  if (type == "linear") {
    config.rotary_scaling = RotaryScalingKind::kLinear;
    return;
  }
  config.rotary_original_positions =
      OriginalPositions(from, kind, of_model, positions);
  if (type == "llama3") {
    config.rotary_scaling = RotaryScalingKind::kLlama3;
    config.rotary_low = kind.Real("low_freq_factor");
    config.rotary_high = kind.Real("high_freq_factor");
    return;
  }
  config.rotary_scaling = RotaryScalingKind::kYarn;
  config.rotary_magnitude = YarnMagnitude(kind, config.rotary_factor);
  config.rotary_high = kind.Real("beta_fast", 0.0);  // 0: the usual one
  config.rotary_low = kind.Real("beta_slow", 0.0);
  if (config.rotary_low == 0) config.rotary_low = 1.0;
  if (of_model) {
    config.rotary_truncate = kind.Flag("truncate", true);
  } else {
    kind.Want("truncate", true);
  }
}

}  // namespace

void ReadRotary(PublishedConfig& from, ModelConfig& config,
                const RotaryDefaults& usual) {
  config.positions = Positions::kRotary;
  PublishedConfig rope = from.Section("rope_parameters");
  if (usual.part) ReadRotatedPart(from, rope, *usual.part, config);
  PublishedConfig scaling = from.Section("rope_scaling");
  config.rotary_base =
      rope.Real("rope_theta", from.Real("rope_theta", usual.base));
  ReadScaling(from, rope.Has("rope_type") ? rope : scaling, /*of_model=*/true,
              usual.positions, config);
  // Which channels count rows and columns of a picture: texts count one thing.
  rope.Ignore({"mrope_section", "mrope_interleaved"});
  rope.RequireAllRead();
  scaling.RequireAllRead();
}

double ReadRotaryByType(PublishedConfig& from, ModelConfig& config,
                        const RotaryDefaults& usual, const char* sliding_key,
                        double sliding_base) {
  config.positions = Positions::kRotary;
  PublishedConfig rope = from.Section("rope_parameters");
  PublishedConfig full = rope.Section("full_attention");
  PublishedConfig sliding = rope.Section("sliding_attention");
  PublishedConfig scaling = from.Section("rope_scaling");
  const double base = from.Real("rope_theta", usual.base);
  if (sliding_key == nullptr) sliding_base = base;
  if (sliding_key != nullptr) {
    sliding_base = from.Real(sliding_key, sliding_base);
  }
  config.rotary_base = full.Real("rope_theta", base);
  ReadScaling(from, full.Has("rope_type") ? full : scaling, /*of_model=*/false,
              usual.positions, config);
  sliding_base = sliding.Real("rope_theta", sliding_base);
  sliding.Want("rope_type", "default");
  for (const PublishedConfig* read : {&rope, &full, &sliding, &scaling}) {
    read->RequireAllRead();
  }
  const bool same = config.rotary_scaling == RotaryScalingKind::kNone &&
                    config.rotary_base == sliding_base;
  return same ? 0.0 : sliding_base;
}

void PublishRotary(const ModelConfig& config, PublishedKeys& to) {
  PublishedKeys rope = {
      {"rope_type",
       kRotaryScalingWords[static_cast<int>(config.rotary_scaling)]},
      {"rope_theta", config.rotary_base}};
  if (config.rotary_scaling == RotaryScalingKind::kNone) {
    rope["rope_type"] = "default";
  } else {
    rope["factor"] = config.rotary_factor;
  }
  if (config.rotary_scaling == RotaryScalingKind::kLlama3) {
    rope["low_freq_factor"] = config.rotary_low;
    rope["high_freq_factor"] = config.rotary_high;
  }
  if (config.rotary_scaling == RotaryScalingKind::kProportional) {
    rope["partial_rotary_factor"] = config.rotary_low;
    if (config.rotary_factor == 1.0) rope.erase("factor");
  }
  if (config.rotary_scaling == RotaryScalingKind::kYarn) {
    const auto unless = [&rope](const char* key, double value, double usual) {
      if (value != usual) rope[key] = value;
    };
    unless("beta_fast", config.rotary_high, 0.0);
    unless("beta_slow", config.rotary_low, 1.0);
    unless("attention_factor", config.rotary_magnitude, 0.0);
    if (!config.rotary_truncate) rope["truncate"] = false;
  }
  if (config.rotary_original_positions > 0) {
    rope["original_max_position_embeddings"] = config.rotary_original_positions;
  }
  to["rope_parameters"] = std::move(rope);
}

void PublishPartialRotary(const ModelConfig& view, PublishedKeys& to) {
  PublishRotary(view, to);
  const int64_t width = KeyOf<int64_t>(view, "rotary_width");
  to["rope_parameters"]["partial_rotary_factor"] =
      FactorOf(width > 0 ? width : view.d_key, view.d_key);
}

}  // namespace tarn
