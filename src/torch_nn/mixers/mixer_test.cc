// Positions and mixers against loops in double, and their registry.
#include "torch_nn/mixers/mixer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/feature_map.h"
#include "core/test_util.h"
#include "reference/torch/plain_model.h"
#include "torch_nn/layers/positions.h"
#include "torch_nn/mixers/registry.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace mixer_test {

using plain::LargestError;

constexpr int64_t kSeqLen = 37;  // no multiple of any chunk

// d_model 24, 3 heads, keys 8 wide, values 5: no two widths equal.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.d_model = 24;
  config.n_heads = 3;
  config.d_key = 8;
  config.d_value = 5;
  config.positions = Positions::kNone;
  FinishConfig(config);
  return config;
}

struct AttentionCase {
  AttentionKind kind;
  FeatureMap map;
  Denominator denominator;
  bool rotary;
  RotaryPlace place;
};

// The identity map has denominators of any sign, near zero too, where no two
// forms agree; it is tested without a denominator, and with one only on
// positive projections that are not rotated before the map.
std::vector<AttentionCase> AttentionCases() {
  using enum FeatureMap;
  using enum Denominator;
  using enum RotaryPlace;
  std::vector<AttentionCase> cases = {
      {MixerKind("full"), kElu1, kExact, false, kBefore},
      {MixerKind("full"), kElu1, kExact, true, kBefore},
      {MixerKind("full"), kElu1, kExact, true, kAfter},  // means before
      {MixerKind("linear"), kIdentity, kNone, false, kBefore},
      {MixerKind("linear"), kIdentity, kNone, true, kBefore},
      {MixerKind("linear"), kIdentity, kNone, true, kAfter},
      {MixerKind("linear"), kIdentity, kExact, false, kBefore},
      {MixerKind("linear"), kIdentity, kExact, true, kAfter},
      {MixerKind("linear"), kIdentity, kCompat, true, kAfter}};
  for (const Denominator denominator : {kExact, kCompat, kNone}) {
    cases.push_back({MixerKind("linear"), kElu1, denominator, false, kBefore});
    cases.push_back({MixerKind("linear"), kElu1, denominator, true, kBefore});
    cases.push_back({MixerKind("linear"), kElu1, denominator, true, kAfter});
  }
  return cases;
}

ModelConfig ConfigOf(const AttentionCase& c) {
  ModelConfig config = SmallConfig();
  config.attention = c.kind;
  SetKey(config, "feature_map", c.map);
  SetKey(config, "denominator", c.denominator);
  SetKey(config, "eps", 0.125);  // large, so that leaving it out would show
  config.rotary_base = 100.0;
  if (c.rotary) config.positions = Positions::kRotary;
  config.rotary_place = c.place;
  return config;
}

std::string NameOf(const AttentionCase& c) {
  return StrCat(Name(c.kind), " ", Name(c.map), " ", Name(c.denominator),
                c.rotary ? " rotary " : " plain ", Name(c.place));
}

std::shared_ptr<Mixer> MakeLayer(const AttentionCase& c) {
  torch::manual_seed(11);
  const std::shared_ptr<Mixer> layer = MakeMixer(ConfigOf(c));
  if (c.map == FeatureMap::kIdentity && c.denominator != Denominator::kNone) {
    torch::NoGradGuard no_grad;
    for (torch::Tensor& p : layer->parameters()) p.abs_();
  }
  return layer;
}

torch::Tensor Inputs(const AttentionCase& c, torch::ScalarType dtype) {
  torch::manual_seed(12);
  const torch::Tensor x =
      torch::randn({2, kSeqLen, 24}, torch::kFloat64).to(dtype);
  return c.map == FeatureMap::kIdentity ? x.abs() : x;
}

using Rows = torch::TensorAccessor<double, 2>;

double Feature(const ModelConfig& config, double x) {
  if (KeyOf<FeatureMap>(config, "feature_map") == FeatureMap::kIdentity)
    return x;
  return x > 0 ? x + 1 : std::exp(x);
}

std::vector<double> TurnedRow(const ModelConfig& config,
                              std::vector<double> row, int64_t token) {
  const int64_t half = config.d_key / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        token * std::pow(config.rotary_base, -2.0 * i / config.d_key);
    const double a = row[i], b = row[i + half];
    row[i] = a * std::cos(angle) - b * std::sin(angle);
    row[i + half] = a * std::sin(angle) + b * std::cos(angle);
  }
  return row;
}

// The features of a query or key row in the numerator and the denominator.
struct Row {
  std::vector<double> numerator, denominator;
};

Row MakeRow(const ModelConfig& config, const Rows& rows, int64_t token) {
  std::vector<double> row(rows[token].data(),
                          rows[token].data() + config.d_key);
  const bool rotary = config.positions == Positions::kRotary;
  const bool linear = config.attention == MixerKind("linear");
  const bool after =
      rotary && linear && config.rotary_place == RotaryPlace::kAfter;
  if (rotary && !after) row = TurnedRow(config, row, token);
  if (linear) {
    for (double& value : row) value = Feature(config, value);
  }
  return {after ? TurnedRow(config, row, token) : row, row};
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// queries, keys [T, K], values [T, V] of one head -> out [T, V].
torch::Tensor LoopHead(const ModelConfig& config, const torch::Tensor& queries,
                       const torch::Tensor& keys, const torch::Tensor& values) {
  torch::Tensor out = torch::zeros_like(values);
  const Rows q = queries.accessor<double, 2>(), k = keys.accessor<double, 2>();
  for (int64_t i = 0; i < queries.size(0); ++i) {
    const Row query = MakeRow(config, q, i);
    double denominator = 0;
    for (int64_t j = 0; j <= i; ++j) {
      const Row key = MakeRow(config, k, j);
      double weight = Dot(query.numerator, key.numerator);
      if (config.attention == MixerKind("full")) {
        weight = std::exp(weight / std::sqrt(1.0 * config.d_key));
        denominator += weight;
      } else {
        denominator += Dot(query.denominator, key.denominator);
      }
      out[i] += weight * values[j];
    }
    if (config.attention == MixerKind("linear")) {
      if (KeyOf<Denominator>(config, "denominator") == Denominator::kNone)
        denominator = 1;
      if (KeyOf<Denominator>(config, "denominator") == Denominator::kCompat)
        denominator += KeyOf<double>(config, "eps");
    }
    out[i] /= denominator;
  }
  return out;
}

torch::Tensor LoopAttention(const ModelConfig& config,
                            const plain::Weights& weights,
                            const torch::Tensor& x) {
  torch::NoGradGuard no_grad;
  const auto head = [&](const char* part, int64_t b, int64_t h) {
    return plain::Affine(weights, part, x)
        .unflatten(2, {config.n_heads, -1})
        .index({b, torch::indexing::Slice(), h})
        .contiguous();
  };
  torch::Tensor out = torch::zeros(
      {x.size(0), x.size(1), config.n_heads, config.d_value}, x.options());
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < config.n_heads; ++h) {
      out.index({b, torch::indexing::Slice(), h})
          .copy_(LoopHead(config, head("query_projection", b, h),
                          head("key_projection", b, h),
                          head("value_projection", b, h)));
    }
  }
  return plain::Affine(weights, "out_projection", out.flatten(2));
}

// Kept tables equal freshly made ones, whatever was requested before.
TEST(PositionTables, EqualFreshTables) {
  ModelConfig config = SmallConfig();
  config.positions = Positions::kRotary;
  PositionTables tables;
  const torch::Tensor like = torch::empty({0}, torch::kFloat64);
  const std::pair<int64_t, int64_t> asked[] = {
      // tokens, and the first of them
      {0, 0},  {5, 0},  {3, 0},  {6, 0},  {40, 0}, {39, 0}, {9, 31},
      {9, 70}, {4, 72}, {9, 71}, {8, 66}, {0, 70}, {7, 0}};
  for (const auto& [seq_len, first] : asked) {
    EXPECT_TRUE(torch::equal(
        tables.Sinusoidal(seq_len, 7, like, first),
        SinusoidalTable(first + seq_len, 7, like).slice(0, first)));
    const RotaryTable given = tables.Rotary(config, seq_len, like, first);
    const RotaryTable wanted = MakeRotaryTable(config, first + seq_len, like);
    EXPECT_TRUE(torch::equal(given.cos, wanted.cos.slice(0, first)));
    EXPECT_TRUE(torch::equal(given.sin, wanted.sin.slice(0, first)));
  }
}

TEST(Mixer, EqualsLoops) {
  for (const AttentionCase& c : AttentionCases()) {
    const ModelConfig config = ConfigOf(c);
    const std::shared_ptr<Mixer> layer = MakeLayer(c);
    const torch::Tensor x = Inputs(c, torch::kFloat64);
    const torch::Tensor expected =
        LoopAttention(config, plain::CopyWeights(*layer, torch::kFloat64), x);
    torch::NoGradGuard no_grad;
    const auto run = [&](torch::ScalarType dtype) {
      layer->to(dtype);
      const torch::Tensor y = x.to(dtype);
      return layer->forward(y, MakeRotaryTable(config, kSeqLen, y));
    };
    EXPECT_LT(LargestError(run(torch::kFloat32), expected), 1e-5) << NameOf(c);
    // The rotary table is rounded to float32 by definition (6e-8 an entry).
    EXPECT_LT(LargestError(run(torch::kFloat64), expected),
              c.rotary ? 1e-6 : 1e-12)
        << NameOf(c);
  }
}

// The slope of a random loss along a random direction in all inputs and
// parameters at once, by autograd and by central differences.
TEST(Mixer, GradientEqualsFiniteDifferences) {
  for (const AttentionCase& c : AttentionCases()) {
    const std::shared_ptr<Mixer> layer = MakeLayer(c);
    layer->to(torch::kFloat64);
    torch::Tensor x = Inputs(c, torch::kFloat64).requires_grad_(true);
    const RotaryTable rotary = MakeRotaryTable(ConfigOf(c), kSeqLen, x);
    const torch::Tensor readout = torch::randn({2, kSeqLen, 24}, x.options());
    std::vector<torch::Tensor> leaves = layer->parameters();
    leaves.push_back(x);
    const auto loss = [&] {
      return (layer->forward(x, rotary) * readout).sum();
    };
    const auto gradients = torch::autograd::grad({loss()}, leaves);
    torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> direction;
    double slope = 0;
    for (size_t i = 0; i < leaves.size(); ++i) {
      direction.push_back(torch::randn_like(leaves[i]));
      slope += (gradients[i] * direction[i]).sum().item<double>();
    }
    const auto move = [&](double step) {
      for (size_t i = 0; i < leaves.size(); ++i) {
        leaves[i].add_(direction[i], step);
      }
      return loss().item<double>();
    };
    // Truncation O(h^2) and rounding O(1e-16 |loss| / h) both stay near 1e-9;
    // elu+1 has a kink in its second derivative, hence no higher order.
    const double h = 1e-6;
    const double difference = (move(h) - move(-2 * h)) / (2 * h);
    EXPECT_NEAR(difference, slope, 1e-5 * std::max(1.0, std::abs(slope)))
        << NameOf(c);
  }
}

TEST(Mixer, Float32GradientEqualsFloat64) {
  for (const AttentionCase& c : AttentionCases()) {
    const std::shared_ptr<Mixer> layer = MakeLayer(c);
    const auto gradients = [&](torch::ScalarType dtype) {
      layer->to(dtype);
      torch::Tensor x = Inputs(c, dtype).requires_grad_(true);
      std::vector<torch::Tensor> leaves = layer->parameters();
      leaves.push_back(x);
      const RotaryTable rotary = MakeRotaryTable(ConfigOf(c), kSeqLen, x);
      return torch::autograd::grad({layer->forward(x, rotary).pow(2).sum()},
                                   leaves);
    };
    const auto narrow = gradients(torch::kFloat32);
    const auto wide = gradients(torch::kFloat64);
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_LT(LargestError(narrow[i], wide[i]), 3e-5)
          << NameOf(c) << ", leaf " << i;
    }
  }
}

TEST(Mixer, DropoutActsOnFullInTrainingOnly) {
  ModelConfig config = SmallConfig();
  config.attention = MixerKind("full");
  SetKey(config, "attention_dropout", 0.5);
  FinishConfig(config);
  torch::manual_seed(3);
  const std::shared_ptr<Mixer> layer = MakeMixer(config);
  torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({1, 6, 24});
  layer->eval();
  const torch::Tensor still = layer->forward(x);
  EXPECT_TRUE(torch::equal(still, layer->forward(x)));
  layer->train();
  torch::manual_seed(4);
  const torch::Tensor first = layer->forward(x);
  EXPECT_FALSE(torch::allclose(first, still, 1e-3, 1e-3));
  torch::manual_seed(4);
  EXPECT_TRUE(torch::equal(first, layer->forward(x)));
  // Inverted scaling: the mean over many draws is the undropped value. With
  // 2000 draws of spread below 1 the mean's spread is below 0.023.
  const torch::Tensor many = layer->forward(x.expand({2000, 6, 24}));
  EXPECT_LT(LargestError(many.mean(0, true), still), 0.1);
}

TEST(Mixer, RefusesWrongShapes) {
  ModelConfig config = SmallConfig();
  const std::shared_ptr<Mixer> layer = MakeMixer(config);
  EXPECT_THROW(layer->forward(torch::zeros({2, 3, 23})), ShapeError);
  EXPECT_THROW(layer->forward(torch::zeros({3, 24})), ShapeError);
  config.positions = Positions::kRotary;
  const std::shared_ptr<Mixer> rotary = MakeMixer(config);
  const torch::Tensor x = torch::zeros({2, 3, 24});
  EXPECT_THROW(rotary->forward(x), ShapeError);
  EXPECT_THROW(rotary->forward(x, MakeRotaryTable(config, 4, x)), ShapeError);
  EXPECT_THROW(MakeMixer(ModelConfig()), ArgumentError);
}

TEST(Positions, LearnedRowsEndWithTheTable) {
  const torch::Tensor like = torch::zeros({1});
  EXPECT_TRUE(torch::equal(LearnedRows("M", 3, 3, like),
                           torch::tensor({0, 1, 2}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(LearnedRows("M", 1, 3, like, {}, 2),
                           torch::tensor({2}, torch::kInt64)));
  EXPECT_EQ(LearnedRows("M", 0, 3, like, {}, 3).numel(), 0);
  const auto message = [&](int64_t seq_len, const torch::Tensor& places,
                           int64_t first) -> std::string {
    try {
      LearnedRows("M", seq_len, 3, like, places, first);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(4, {}, 0),
            "M: tokens: want at most max_positions = 3 positions, those "
            "before included, got 4");
  EXPECT_NE(message(1, {}, 3), "");
  EXPECT_NE(message(1, torch::tensor({{0}, {3}}, torch::kInt64), 0), "");
  EXPECT_EQ(message(1, torch::tensor({{0}, {2}}, torch::kInt64), 0), "");
}

TEST(Positions, RotationTurnsHalves) {
  ModelConfig config = SmallConfig();
  config.positions = Positions::kRotary;
  const torch::Tensor x = torch::randn({1, 6, 3, 8}, torch::kFloat64);
  const torch::Tensor y = Rotate(x, MakeRotaryTable(config, 6, x));
  EXPECT_TRUE(torch::equal(y.select(1, 0), x.select(1, 0)));
  // Pair (0, 4) rotates by one radian a token; norms stay.
  const double a = x[0][1][0][0].item<double>(),
               b = x[0][1][0][4].item<double>();
  EXPECT_NEAR(y[0][1][0][0].item<double>(), a * std::cos(1) - b * std::sin(1),
              1e-6);
  EXPECT_NEAR(y[0][1][0][4].item<double>(), a * std::sin(1) + b * std::cos(1),
              1e-6);
  EXPECT_LT(LargestError(y.pow(2).sum(-1), x.pow(2).sum(-1)), 1e-6);
}

}  // namespace mixer_test
}  // namespace tarn::nn
