// Rotary positions of GGUF files. llama3's scaling is a tensor of numbers by
// which frequencies are divided; its parameters follow from them.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "core/rotary_scaling.h"
#include "core/text.h"
#include "importers/gguf/stack.h"

namespace tarn {
namespace {

constexpr const char* kFactors = "rope_freqs.weight";
// The factors are float32.
constexpr double kSameFactor = 2e-6;

std::vector<double> FactorsOf(const RotaryScaling& scaling, double base,
                              int64_t width) {
  std::vector<double> factors;
  for (int64_t i = 0; i < width / 2; ++i) {
    const double f = RotaryFrequency(i, width, base);
    factors.push_back(f / Llama3Frequency(f, scaling));
  }
  return factors;
}

bool Gives(const RotaryScaling& scaling, double base,
           const std::vector<float>& given) {
  const std::vector<double> factors =
      FactorsOf(scaling, base, std::ssize(given) * 2);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!(std::abs(factors[i] - given[i]) <= kSameFactor * given[i])) {
      return false;
    }
  }
  return true;
}

// The kept part of frequency i is (positions x_i - low) / (high - low) between
// 0 and 1, x_i turns a position. Only two of the three numbers can be told: low
// is 1.
struct Kept {
  double turns, part;
};

RotaryScaling WithLow1(double factor, double positions, double high) {
  RotaryScaling scaling;
  scaling.kind = RotaryScalingKind::kLlama3;
  scaling.factor = factor;
  // Whole numbers are what files say; otherwise the others are scaled.
  const double whole = std::max(1.0, std::nearbyint(positions));
  const double scale =
      std::abs(whole - positions) < 1e-4 * positions ? 1.0 : whole / positions;
  scaling.original_positions = static_cast<int64_t>(whole);
  scaling.low = scale;
  const double rounded = std::nearbyint(high);
  scaling.high =
      scale * (std::abs(rounded - high) < 1e-4 * high ? rounded : high);
  return scaling;
}

// What may have made the factors; which of them did is tried.
std::vector<RotaryScaling> Candidates(double base,
                                      const std::vector<float>& factors) {
  const double most = *std::max_element(factors.begin(), factors.end());
  std::vector<Kept> between;
  double slowest_kept = 0, fastest = 0;  // turns at the ends of the ramp
  for (size_t i = 0; i < factors.size(); ++i) {
    const double turns = RotaryFrequency(static_cast<int64_t>(i),
                                         std::ssize(factors) * 2, base) /
                         (2 * std::numbers::pi);
    const double part = (1 / factors[i] - 1 / most) / (1 - 1 / most);
    if (part > kSameFactor && part < 1 - kSameFactor) {
      between.push_back({turns, part});
    } else if (part >= 1 - kSameFactor) {
      slowest_kept = turns;
    } else {
      fastest = std::max(fastest, turns);
    }
  }
  // The numbers of Llama 3 and those of its kin first.
  std::vector<RotaryScaling> found = {WithLow1(most, 8192, 4)};
  if (between.size() >= 2) {
    const Kept a = between.front(), b = between.back();
    const double slope = (a.part - b.part) / (a.turns - b.turns);
    const double at0 = a.part - slope * a.turns;  // -low / (high - low)
    if (at0 < 0) found.push_back(WithLow1(most, -slope / at0, 1 - 1 / at0));
  }
  for (const double high : {4.0, 2.0, 8.0, 1.5, 16.0, 1.1}) {
    if (!between.empty()) {
      const Kept one = between.front();
      found.push_back(
          WithLow1(most, (1 + one.part * (high - 1)) / one.turns, high));
    } else if (fastest > 0) {
      found.push_back(WithLow1(most, 1 / fastest, high));
    }
    if (slowest_kept > 0) {
      found.push_back(WithLow1(most, high / slowest_kept, high));
    }
  }
  return found;
}

PublishedKeys Llama3Keys(GgufKeys& from, double base, int64_t width) {
  const std::vector<float> factors = from.Numbers(kFactors, kMostSize);
  const bool usable =
      std::ssize(factors) * 2 == width &&
      std::all_of(factors.begin(), factors.end(), [](float factor) {
        return factor >= 1 && std::isfinite(factor);
      });
  if (usable) {
    if (std::all_of(factors.begin(), factors.end(),
                    [](float factor) { return factor == 1; })) {
      return {{"rope_type", "default"}};
    }
    for (const RotaryScaling& scaling : Candidates(base, factors)) {
      if (!(scaling.low > 0 && scaling.low < scaling.high) ||
          !Gives(scaling, base, factors)) {
        continue;
      }
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low},
              {"high_freq_factor", scaling.high},
              {"original_max_position_embeddings", scaling.original_positions}};
    }
  }
  throw FormatError(
      StrCat(from.file().path(), ": tensor '", kFactors, "'"),
      StrCat(width / 2, " factors of llama3's scaling with base ", base),
      StrCat(factors.size(), " others"));
}

PublishedKeys YarnKeys(GgufKeys& from) {
  PublishedKeys keys = {{"rope_type", "yarn"},
                        {"factor", from.Real("rope.scaling.factor")}};
  const auto take = [&](const char* key, const char* published) {
    if (from.Has(key)) keys[published] = from.Real(key);
  };
  if (from.Has("rope.scaling.original_context_length")) {
    keys["original_max_position_embeddings"] =
        from.Integer("rope.scaling.original_context_length", 1, kMostSize);
  }
  take("rope.scaling.yarn_attn_factor", "attention_factor");
  take("rope.scaling.yarn_beta_fast", "beta_fast");
  take("rope.scaling.yarn_beta_slow", "beta_slow");
  const double extrapolation = from.Real("rope.scaling.yarn_ext_factor", 1.0);
  if (extrapolation != 1.0) {
    from.Refuse("rope.scaling.yarn_ext_factor", "1", StrCat(extrapolation));
  }
  return keys;
}

}  // namespace

PublishedKeys GgufScaling(GgufKeys& from, double base, int64_t width) {
  const std::string type = from.Text("rope.scaling.type", "none");
  // Whether the scaled model was trained further, which is no part of it.
  from.Ignore({"rope.scaling.finetuned"});
  PublishedKeys keys = {{"rope_type", "default"}};
  if (type == "yarn") {
    keys = YarnKeys(from);
  } else if (type == "linear" || type == "none") {
    const char* key = from.Has("rope.scaling.factor") ? "rope.scaling.factor"
                                                      : "rope.scale_linear";
    const double factor = from.Real(key, 0.0);  // 0 counts as none
    if (type == "linear" && factor != 0 && factor != 1) {
      keys = {{"rope_type", "linear"}, {"factor", factor}};
    }
    from.Ignore({"rope.scaling.original_context_length"});
  } else {
    from.Refuse("rope.scaling.type", "'none', 'linear' or 'yarn'",
                Quoted(type));
  }
  if (from.HasTensor("rope_factors_long.weight")) {
    throw FormatError(
        StrCat(from.file().path(), ": tensor 'rope_factors_long.weight'"),
        "frequencies that do not change with the length of the text",
        "such a tensor");
  }
  if (!from.HasTensor(kFactors)) return keys;
  if (keys["rope_type"] == "default") return Llama3Keys(from, base, width);
  throw FormatError(StrCat(from.file().path(), ": tensor '", kFactors, "'"),
                    "one scaling of the frequencies",
                    StrCat("that of rope.scaling.type ", Quoted(type), " too"));
}

void ReadGgufRotary(GgufKeys& from, PublishedKeys& to) {
  const int64_t width = to["head_dim"];
  if (from.Integer("rope.dimension_count", 1, kMostSize, width) != width) {
    from.Refuse("rope.dimension_count",
                StrCat("the ", width, " channels of a head"), "another number");
  }
  const double base = from.Real("rope.freq_base", 10000.0);
  PublishedKeys rope = GgufScaling(from, base, width);
  rope["rope_theta"] = base;
  to["rope_parameters"] = std::move(rope);
}

void AddGgufRotaryKeys(const GgufExport& from, const std::string& architecture,
                       int64_t width, GgufKeyList& to, bool factors) {
  const std::string rope = architecture + ".rope.";
  const ModelConfig& config = from.config;
  to.U32(rope + "dimension_count", width);
  to.F32(rope + "freq_base", config.rotary_base);
  switch (config.rotary_scaling) {
    case RotaryScalingKind::kNone:
      return;
    case RotaryScalingKind::kLlama3:  // a tensor
      if (factors) return;
      throw FormatError(
          "config.json: rotary_scaling",
          StrCat("none, linear or yarn, which llama.cpp has for '",
                 architecture, "'"),
          "llama3");
    case RotaryScalingKind::kLinear:
      to.Text(rope + "scaling.type", "linear");
      to.F32(rope + "scaling.factor", config.rotary_factor);
      return;
    case RotaryScalingKind::kYarn:
      break;
    case RotaryScalingKind::kProportional:
      throw FormatError("config.json: rotary_scaling",
                        "none, linear, llama3 or yarn, which llama.cpp has",
                        "proportional");
  }
  if (config.rotary_magnitude != 0 || !config.rotary_truncate) {
    throw FormatError("config.json: rotary_magnitude, rotary_truncate",
                      "yarn's usual ones, which llama.cpp has", "others");
  }
  to.Text(rope + "scaling.type", "yarn");
  to.F32(rope + "scaling.factor", config.rotary_factor);
  to.U32(rope + "scaling.original_context_length",
         config.rotary_original_positions);
  to.F32(rope + "scaling.yarn_beta_fast", config.Scaling().HighTurns());
  to.F32(rope + "scaling.yarn_beta_slow", config.rotary_low);
}

void WriteGgufFactors(const ModelConfig& config, int64_t width,
                      GgufTensors& tensors) {
  tensors.Skip(kFactors);
  if (!tensors.writes() ||
      config.rotary_scaling != RotaryScalingKind::kLlama3) {
    return;
  }
  const std::vector<double> factors =
      FactorsOf(config.Scaling(), config.rotary_base, width);
  tensors.Write(kFactors, {width / 2}, {factors.begin(), factors.end()});
}

}  // namespace tarn
