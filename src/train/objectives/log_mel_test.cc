#include "train/objectives/log_mel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "torch_nn/torch.h"

namespace tarn::train {
namespace log_mel_test {

torch::Tensor Noise(int64_t count) {
  Rng rng(3);
  torch::Tensor sound = torch::empty({count}, torch::kFloat32);
  float* samples = sound.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = static_cast<float>(rng.Uniform() - 0.5);
  }
  return sound;
}

double Largest(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.numel() == 0) return 0;
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64))
      .abs()
      .max()
      .item<double>();
}

// By definition: a window, a sum for every frequency, triangles. [T, bands]
torch::Tensor Reference(const torch::Tensor& sound, int64_t frames, int64_t hop,
                        const torch::Tensor& filters) {
  const int64_t window = 200, transform = 256, bins = transform / 2 + 1;
  const float* samples = sound.data_ptr<float>();
  torch::Tensor power = torch::zeros({frames, bins}, torch::kFloat64);
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t k = 0; k < bins; ++k) {
      double re = 0, im = 0;
      for (int64_t n = 0; n < window; ++n) {
        if (t * hop + n >= sound.size(0)) break;
        const double turn = 2 * std::numbers::pi * static_cast<double>(n);
        const double value =
            samples[t * hop + n] * 0.5 * (1 - std::cos(turn / window));
        re += value * std::cos(turn * static_cast<double>(k) / transform);
        im += value * std::sin(turn * static_cast<double>(k) / transform);
      }
      power[t][k] = re * re + im * im;
    }
  }
  return (power.matmul(filters.t()) + 1e-6).log();
}

struct Golden {
  torch::Tensor samples, filters, log_mel;
};

Golden ReadGolden() {
  const auto file = SafetensorsFile::Open(std::string(TARN_SOURCE_DIR) +
                                          "/tests/golden/log_mel.safetensors")
                        .Take();
  const auto read = [&](const char* name) {
    const TensorEntry* entry = file.Find(name);
    torch::Tensor values = torch::empty(entry->shape, torch::kFloat32);
    file.ReadF32(*entry, values.data_ptr<float>());
    return values;
  };
  return {read("samples"), read("filters"), read("log_mel")};
}

TEST(LogMel, IsThatOfLibrosa) {
  const Golden golden = ReadGolden();
  // float32 of a power that spans eight decades: relative 1e-4 in the worst
  // bin is 1e-4 after the logarithm.
  EXPECT_LT(Largest(MelFilters({}), golden.filters), 1e-6);
  EXPECT_LT(Largest(LogMel(golden.samples, {}), golden.log_mel), 1e-3);
}

TEST(LogMel, IsItsDefinition) {
  for (const int64_t count : {1, 79, 199, 200, 201, 279, 280, 1237}) {
    const torch::Tensor sound = Noise(count);
    const LogMelOptions options;
    const int64_t frames = count < 280 ? 1 : count == 280 ? 2 : 13;
    EXPECT_EQ(options.Frames(count), frames) << count;
    EXPECT_LT(Largest(LogMel(sound, options),
                      Reference(sound, frames, 80, MelFilters(options))),
              2e-4)
        << count;
  }
}

TEST(LogMel, AWarpAndASpeedAreTheirDefinition) {
  LogMelOptions options;
  options.warp = 1.2;
  options.speed = 0.8;
  const torch::Tensor sound = Noise(1237);
  EXPECT_EQ(options.hop(), 64);
  EXPECT_LT(Largest(LogMel(sound, options),
                    Reference(sound, 17, 64, MelFilters(options))),
            2e-4);
}

TEST(LogMel, NoSoundHasNoFrame) {
  const torch::Tensor features = LogMel(torch::empty({0}), {});
  EXPECT_EQ(features.sizes(), (std::vector<int64_t>{0, 40}));
  EXPECT_EQ(NormaliseUtterance(features).size(0), 0);
}

TEST(LogMel, StridedSoundIsTheSame) {
  const torch::Tensor sound = Noise(2000);
  const torch::Tensor every = sound.slice(0, 0, 2000, 2);
  EXPECT_TRUE(torch::equal(LogMel(every, {}), LogMel(every.contiguous(), {})));
}

// The middle of a band is where its triangle has its top.
double TopOf(const torch::Tensor& filters, int64_t band) {
  return filters[band].argmax().item<double>();
}

TEST(MelFilters, AWarpMovesBandsAndKeepsTheirOrder) {
  LogMelOptions options;
  const torch::Tensor plain = MelFilters(options);
  for (const double warp : {0.75, 0.9, 1.1, 1.3}) {
    options.warp = warp;
    const torch::Tensor warped = MelFilters(options);
    EXPECT_TRUE(warped.ge(0).all().item<bool>());
    for (int64_t band = 10; band < 40; ++band) {
      EXPECT_GE(TopOf(warped, band), TopOf(warped, band - 1));
    }
    // Band 25 is at 1.3 kHz, below every knee.
    EXPECT_NEAR(TopOf(warped, 25), warp * TopOf(plain, 25), 1.0) << warp;
  }
}

TEST(LogMel, RefusesWrongInput) {
  EXPECT_THROW(LogMel(torch::zeros({2, 3}), {}), ShapeError);
  EXPECT_THROW(LogMel(torch::zeros({300}, torch::kFloat64), {}), DTypeError);
  for (const double wrong : {0.4, 2.1, std::nan("")}) {
    LogMelOptions options;
    options.warp = wrong;
    EXPECT_THROW(LogMel(Noise(300), options), ArgumentError);
    options = {};
    options.speed = wrong;
    EXPECT_THROW(LogMel(Noise(300), options), ArgumentError);
  }
  LogMelOptions options;
  options.bands = 129;
  EXPECT_THROW(MelFilters(options), ArgumentError);
  options.bands = 0;
  EXPECT_THROW(MelFilters(options), ArgumentError);
  options = {};
  options.sample_rate = 0;
  EXPECT_THROW(MelFilters(options), ArgumentError);
}

TEST(NormaliseUtterance, EveryBandHasMeanZero) {
  const torch::Tensor features =
      torch::randn({50, 4}) * torch::tensor({1.0, 3.0, 0.0, 2.0}) + 5.0;
  const torch::Tensor normal = NormaliseUtterance(features);
  EXPECT_LT(normal.mean(0).abs().max().item<double>(), 1e-5);
  const torch::Tensor deviation =
      (features.var(0, /*unbiased=*/false) + 0.25).sqrt();
  EXPECT_LT(Largest(normal * deviation + features.mean(0), features), 1e-5);
  EXPECT_EQ(normal.select(1, 2).abs().max().item<double>(), 0.0);
  EXPECT_EQ(
      NormaliseUtterance(features.slice(0, 0, 1)).abs().sum().item<double>(),
      0.0);
}

}  // namespace log_mel_test
}  // namespace tarn::train
