// The promise of the project: the training forward pass, the runtime's prefill
// and the runtime's steps are one function. For every configuration that both
// sides support, 4 layers and 256 tokens, their logits agree to 1e-4.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "core/config.h"
#include "core/test_util.h"
#include "pytorch/language_model.h"
#include "runtime/model.h"
#include "runtime/tokenizer.h"

namespace tarn {
namespace {

constexpr int64_t kSeqLen = 256;
constexpr double kTolerance = 1e-4;  // absolute, on float32 logits

// What decides the arithmetic of attention and positions: the full product.
std::vector<ModelConfig> AttentionConfigs() {
  struct Place {
    Positions positions;
    PositionCombine combine;
    RotaryPlace rotary;
  };
  using enum PositionCombine;
  using enum RotaryPlace;
  const Place places[] = {{Positions::kNone, kAdd, kBefore},
                          {Positions::kSinusoidal, kAdd, kBefore},
                          {Positions::kSinusoidal, kConcat, kBefore},
                          {Positions::kLearned, kAdd, kBefore},
                          {Positions::kRotary, kAdd, kBefore},
                          {Positions::kRotary, kAdd, kAfter}};
  std::vector<ModelConfig> configs;
  for (const Place& place : places) {
    ModelConfig config;
    config.positions = place.positions;
    config.position_combine = place.combine;
    config.rotary_place = place.rotary;
    config.attention = AttentionKind::kFull;
    configs.push_back(config);
    config.attention = AttentionKind::kLinear;
    for (const FeatureMap map : {FeatureMap::kElu1, FeatureMap::kIdentity}) {
      for (const Denominator denominator :
           {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
        // Rotated before the identity map, products q.k take both signs and
        // denominators pass through 0, where float32 has no answer to agree on.
        const bool rotated_before =
            place.positions == Positions::kRotary && place.rotary == kBefore;
        if (map == FeatureMap::kIdentity && rotated_before &&
            denominator != Denominator::kNone) {
          continue;
        }
        config.feature_map = map;
        config.denominator = denominator;
        configs.push_back(config);
      }
    }
  }
  return configs;
}

// The two-valued choices around it: norm, activation, tied, final_norm. Eight
// rows of an orthogonal array of strength 3: with the product above, every
// choice meets every pair of the others.
std::vector<ModelConfig> AllConfigs() {
  std::vector<ModelConfig> configs;
  for (ModelConfig config : AttentionConfigs()) {
    for (int row = 0; row < 8; ++row) {
      const bool a = row & 1, b = row & 2, c = row & 4;
      config.norm = a ? Norm::kPre : Norm::kPost;
      config.activation = b ? Activation::kGelu : Activation::kRelu;
      config.final_norm = c;
      config.tied_head = a ^ b ^ c;
      if (config.tied_head &&
          config.position_combine == PositionCombine::kConcat) {
        config.tied_head = false;  // the embedding is half as wide
      }
      config.d_model = 32;
      config.n_layers = 4;
      config.n_heads = 4;
      config.d_key = 8;
      config.d_value = 6;  // unlike d_key and d_model / n_heads
      config.d_ff = 72;
      config.eps = 0.01;           // large enough to be seen in compat
      config.max_positions = 200;  // so that 56 tokens lie past the table
      FinishConfig(config);
      configs.push_back(config);
    }
  }
  return configs;
}

std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.attention), " ", Name(c.feature_map), " ",
                Name(c.denominator), " ", Name(c.positions), " ",
                Name(c.position_combine), " ", Name(c.rotary_place), " ",
                Name(c.norm), " ", Name(c.activation),
                c.tied_head ? " tied" : "", c.final_norm ? " final_norm" : "");
}

// Every weight differs from its initial value, norms and biases included, so
// that one read in another's place shows in the logits.
nn::LanguageModel RandomModel(const ModelConfig& config, uint64_t seed) {
  torch::manual_seed(seed);
  nn::LanguageModel model(config);
  model->eval();
  torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& weight = item.value();
    weight.add_(torch::randn_like(weight), 0.1);
    const bool query_or_key = Contains(name, "query") || Contains(name, "key");
    if (config.attention != AttentionKind::kLinear) continue;
    if (config.denominator == Denominator::kNone) {
      // Sums over up to 256 tokens; values this small keep logits near 1.
      if (Contains(name, "value_projection")) weight.mul_(1e-3);
    } else if (config.feature_map == FeatureMap::kIdentity && query_or_key) {
      // Positive queries and keys, as the map's use with a denominator asks:
      // a bias of 8 over a spread below 2.
      weight.mul_(Contains(name, "weight") ? 0.25 : 0.0);
      if (Contains(name, "bias")) weight.add_(8.0);
    }
  }
  return model;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void SaveModel(nn::LanguageModel& model, const std::string& dir) {
  WriteText(dir + "/config.json", ConfigToJson(model->config()));
  WriteText(dir + "/tokenizer.json", Tokenizer::Byte().ToJson());
  nn::SaveWeights(model, dir + "/model.safetensors");
}

struct Differences {
  double prefill = 0, steps = 0;  // largest, from the training forward
  double spread = 0;              // standard deviation of the logits
};

double LargestDifference(const std::vector<float>& a, const float* b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    // A NaN on either side must not pass for agreement.
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(difference)) return INFINITY;
  }
  return largest;
}

Differences Compare(nn::LanguageModel& model, const std::string& dir) {
  SaveModel(model, dir);
  torch::NoGradGuard no_grad;
  const torch::Tensor tokens = torch::randint(256, {1, kSeqLen}, torch::kInt64);
  const torch::Tensor expected = model(tokens)[0].contiguous();

  ModelOptions options;
  options.threads = 1;
  const Model runtime = Model::Open(dir, options).Take();
  std::vector<int32_t> ids(kSeqLen);
  for (int64_t t = 0; t < kSeqLen; ++t) {
    ids[t] = static_cast<int32_t>(tokens[0][t].item<int64_t>());
  }
  const int64_t vocab = runtime.vocab_size();
  std::vector<float> prefill(kSeqLen * vocab), steps(kSeqLen * vocab);
  State whole(runtime);
  runtime.Score(whole, ids, prefill.data());
  State stepped(runtime);
  for (int64_t t = 0; t < kSeqLen; ++t) {
    runtime.Step(stepped, ids[t], steps.data() + t * vocab);
  }
  const float* reference = expected.data_ptr<float>();
  return {LargestDifference(prefill, reference),
          LargestDifference(steps, reference), expected.std().item<double>()};
}

TEST(ThreeWay, EveryConfiguration) {
  torch::set_num_threads(1);  // tensors too small to share
  TemporaryFolder folder;
  Differences largest;
  std::string worst;
  const std::vector<ModelConfig> configs = AllConfigs();
  for (size_t i = 0; i < configs.size(); ++i) {
    nn::LanguageModel model = RandomModel(configs[i], i + 1);
    const Differences d = Compare(model, folder.path());
    EXPECT_LE(d.prefill, kTolerance) << TextOf(configs[i]);
    EXPECT_LE(d.steps, kTolerance) << TextOf(configs[i]);
    // Logits that hardly move would agree whatever was wrong.
    EXPECT_GT(d.spread, 0.1) << TextOf(configs[i]);
    if (d.prefill > largest.prefill) worst = TextOf(configs[i]);
    largest.prefill = std::max(largest.prefill, d.prefill);
    largest.steps = std::max(largest.steps, d.steps);
  }
  std::cout << configs.size() << " configurations, largest difference on "
            << "logits: prefill " << largest.prefill << " (" << worst
            << "), steps " << largest.steps << "\n";
}

// The sizes `tarn train` starts from, both kinds, initial weights.
TEST(ThreeWay, DefaultSizes) {
  TemporaryFolder folder;
  for (const AttentionKind kind :
       {AttentionKind::kLinear, AttentionKind::kFull}) {
    ModelConfig config;
    config.attention = kind;
    FinishConfig(config);
    torch::manual_seed(1);
    nn::LanguageModel model(config);
    model->eval();
    const Differences d = Compare(model, folder.path());
    EXPECT_LE(d.prefill, kTolerance) << Name(kind);
    EXPECT_LE(d.steps, kTolerance) << Name(kind);
    EXPECT_GT(d.spread, 0.1) << Name(kind);
    std::cout << Name(kind) << ", default sizes: prefill " << d.prefill
              << ", steps " << d.steps << "\n";
  }
}

}  // namespace
}  // namespace tarn
