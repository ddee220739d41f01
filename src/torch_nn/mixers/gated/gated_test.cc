// The gated mixers, RWKV and Mamba-1 against loops in double (plain_gated.h,
// plain_rwkv.h and plain_mamba.h): values, gradients, pieces, lengths
// and masks.
#include "torch_nn/mixers/gated/gated.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "reference/torch/plain_model.h"
#include "torch_nn/layers/norms.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace gated_test {

using plain::LargestError;
using Options = std::vector<std::pair<const char*, const char*>>;

constexpr int64_t kSeqLen = 37;  // no multiple of any chunk

struct Case {
  const char* name;
  Options options;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"retnet", {}},
      {"retnet", {{"positions", "rotary"}}},
      {"lightning", {}},
      {"mamba2", {{"key_heads", "2"}}},
      {"mamba2", {{"conv_width", "0"}}},
      {"mamba2", {{"mamba2_norm", "false"}, {"least_step", "0.3"}}},
      {"mamba2", {{"mamba2_norm_first", "true"}, {"most_step", "0.6"}}},
      {"gla", {}},
      {"gla", {{"gate_rank", "3"}}},
      {"hgrn2", {}},
      {"deltanet", {{"key_heads", "1"}}},
      {"deltanet", {{"conv_width", "0"}, {"negative_eigenvalues", "true"}}},
      {"gdn", {{"key_heads", "2"}}},
      {"gdn", {{"conv_width", "8"}, {"negative_eigenvalues", "true"}}},
      {"kda", {{"key_heads", "2"}, {"conv_width", "2"}}},
      {"kda", {{"gate_rank", "7"}}},
      {"gla", {{"gate_activation", "none"}, {"output_norm_eps", "0.1"}}},
      {"gdn", {{"gate_activation", "sigmoid"}}},
      {"deltanet", {{"gate_activation", "silu"}}},
      {"kda", {{"gate_bias", "true"}, {"gate_rank", "3"}}},
      {"kda", {{"gate_activation", "none"}, {"gate_bias", "true"}}},
      {"norm-linear", {}},
      {"norm-linear", {{"qk_map", "hadamard"}}},
      {"norm-linear", {{"qk_map", "identity"}, {"gate_activation", "silu"}}},
      {"norm-linear", {{"qk_map", "relu"}, {"unit_queries", "true"}}},
      {"norm-linear",
       {{"qk_map", "t2r"}, {"unit_keys", "true"}, {"output_norm_eps", "0.1"}}},
      {"norm-linear", {{"qk_map", "hedgehog"}, {"divided_sums", "true"}}},
      {"norm-linear",
       {{"qk_map", "dpfp"},
        {"unit_queries", "true"},
        {"unit_keys", "true"},
        {"recurrent_in_bias", "true"}}},
      {"rwkv6",
       {{"d_value", "6"}, {"shift_rank", "3"}, {"output_norm_eps", "0.1"}}},
      {"rwkv7",
       {{"d_value", "6"},
        {"gate_rank", "3"},
        {"rate_rank", "5"},
        {"output_gate_rank", "4"},
        {"unit_eps", "0.1"}}},
      {"rwkv6", {{"d_value", "6"}}},
      {"rwkv6", {{"d_value", "6"}, {"gate_rank", "3"}}},
      {"rwkv7", {{"d_value", "6"}}},
      {"rwkv7", {{"d_value", "6"}, {"gate_rank", "3"}}},
      {"mamba1", {}},
      {"mamba1", {{"gate_rank", "3"}, {"conv_width", "0"}}},
      {"short-conv", {}},
      {"short-conv", {{"conv_width", "7"}, {"conv_bias", "true"}}},
      {"rg-lru", {}},
      {"rg-lru", {{"conv_width", "0"}}},
      {"mlstm", {}},
      {"mlstm", {{"gate_softcap", "0"}}},
      {"mamba1", {{"selection_norm", "true"}}},
      {"mamba1",
       {{"recurrent_in_bias", "true"}, {"recurrent_out_bias", "true"}}},
      {"mamba2",
       {{"recurrent_in_bias", "true"}, {"recurrent_out_bias", "true"}}},
      {"kda", {{"recurrent_in_bias", "true"}}},
      {"hgrn2", {{"recurrent_in_bias", "true"}}},
      {"mamba1", {{"selection_norm", "true"}, {"selection_norm_eps", "0.3"}}}};
  return cases;
}

std::string TextOf(const Case& c) {
  std::string text = c.name;
  for (const auto& [key, value] : c.options) {
    text += StrCat(" ", key, "=", value);
  }
  return text;
}

// d_model 12, 4 heads, keys 6 wide, values 5: no two widths equal.
ModelConfig ConfigOf(const Case& c) {
  ModelConfig config;
  config.d_model = 12;
  config.n_heads = 4;
  config.d_key = 6;
  config.d_value = 5;
  config.n_layers = 3;
  config.positions = Positions::kNone;
  config.norm_eps = 0.01;  // large, so that its place would show
  config.rotary_base = 100.0;
  SetConfigField(config, "attention", c.name);
  for (const auto& [key, value] : c.options) {
    SetConfigField(config, key, value);
  }
  FinishConfig(config);
  return config;
}

// The second layer of three, whose parameters are all unlike their first
// values.
std::shared_ptr<Mixer> MakeLayer(const Case& c) {
  torch::set_num_threads(1);  // tensors too small to share
  torch::manual_seed(11);
  const std::shared_ptr<Mixer> layer =
      MakeMixer(ConfigOf(c), {.causal = true, .index = 1});
  torch::NoGradGuard no_grad;
  for (torch::Tensor& p : layer->parameters()) {
    p.add_(torch::randn_like(p), 0.1);
  }
  return layer;
}

torch::Tensor Inputs(int64_t batch, int64_t seq_len,
                     torch::ScalarType dtype = torch::kFloat64) {
  torch::manual_seed(12);
  return torch::randn({batch, seq_len, 12}, torch::kFloat64).to(dtype);
}

torch::Tensor OutputOf(const Case& c, Mixer& layer, const torch::Tensor& x,
                       const torch::Tensor& key_mask = {}) {
  return layer.forward(x, MakeRotaryTable(ConfigOf(c), x.size(1), x), key_mask);
}

// What Prefill gives, with what its caller adds.
torch::Tensor Biased(const Mixer& layer, const torch::Tensor& out) {
  const torch::Tensor bias = layer.OutputBias();
  return bias.defined() ? out + bias : out;
}

TEST(Gated, EqualsLoops) {
  double narrow = 0, wide = 0;
  for (const Case& c : Cases()) {
    for (const int64_t seq_len : {int64_t{0}, int64_t{1}, kSeqLen}) {
      const auto layer = MakeLayer(c);
      const torch::Tensor x = Inputs(2, seq_len);
      torch::NoGradGuard no_grad;
      const torch::Tensor expected = plain::RecurrentMix(
          ConfigOf(c), plain::CopyWeights(*layer, torch::kFloat64), "", x);
      const torch::Tensor given = OutputOf(c, *layer, x.to(torch::kFloat32));
      ASSERT_EQ(given.sizes(), expected.sizes());
      if (seq_len == 0) continue;
      const double error = LargestError(given, expected);
      EXPECT_LT(error, 1e-5) << TextOf(c) << ", " << seq_len;
      layer->to(torch::kFloat64);
      const double error64 = LargestError(OutputOf(c, *layer, x), expected);
      // The rotary table and the eps of keys are rounded to float32 by
      // definition (6e-8 an entry).
      EXPECT_LT(error64, 1e-6) << TextOf(c) << ", " << seq_len;
      narrow = std::max(narrow, error);
      wide = std::max(wide, error64);
    }
  }
  std::cout << "float32: " << narrow << ", float64: " << wide << "\n";
}

// The gradient of a random readout with respect to all parameters and inputs,
// by kernels in float32 and by the composed form in float64, against autograd
// of the loop.
TEST(Gated, GradientEqualsThatOfLoops) {
  double narrow = 0, wide = 0;
  for (const Case& c : Cases()) {
    const auto layer = MakeLayer(c);
    const plain::Weights weights = plain::CopyWeights(*layer, torch::kFloat64);
    const torch::Tensor readout =
        torch::randn({2, kSeqLen, 12}, torch::kFloat64);
    std::vector<std::string> names;
    std::vector<torch::Tensor> theirs;
    for (const auto& item : layer->named_parameters()) {
      names.push_back(item.key());
      theirs.push_back(weights.at(item.key()));
    }
    names.push_back("x");
    theirs.push_back(Inputs(2, kSeqLen).requires_grad_(true));
    const auto expected = torch::autograd::grad(
        {(plain::RecurrentMix(ConfigOf(c), weights, "", theirs.back()) *
          readout)
             .sum()},
        theirs);
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      layer->to(dtype);
      std::vector<torch::Tensor> ours = layer->parameters();
      ours.push_back(Inputs(2, kSeqLen, dtype).requires_grad_(true));
      const auto given = torch::autograd::grad(
          {(OutputOf(c, *layer, ours.back()) * readout.to(dtype)).sum()}, ours);
      for (size_t i = 0; i < given.size(); ++i) {
        const double size = 1 + expected[i].abs().max().item<double>();
        const double error = LargestError(given[i], expected[i]) / size;
        EXPECT_LT(error, dtype == torch::kFloat32 ? 1e-5 : 1e-6)
            << TextOf(c) << ", " << names[i];
        double& largest = dtype == torch::kFloat32 ? narrow : wide;
        largest = std::max(largest, error);
      }
    }
  }
  std::cout << "float32: " << narrow << ", float64: " << wide << "\n";
}

// The slope of a random loss along a random direction, by autograd and by
// central differences.
TEST(Gated, GradientEqualsFiniteDifferences) {
  for (const Case& c : Cases()) {
    const auto layer = MakeLayer(c);
    layer->to(torch::kFloat64);
    torch::Tensor x = Inputs(2, 19).requires_grad_(true);
    const torch::Tensor readout = torch::randn_like(x);
    std::vector<torch::Tensor> leaves = layer->parameters();
    leaves.push_back(x);
    const auto loss = [&] { return (OutputOf(c, *layer, x) * readout).sum(); };
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
    const double h = 1e-6;
    const double difference = (move(h) - move(-2 * h)) / (2 * h);
    EXPECT_NEAR(difference, slope, 1e-5 * std::max(1.0, std::abs(slope)))
        << TextOf(c);
  }
}

// Pieces and single tokens, an empty piece among them.
TEST(Gated, PiecesEqualWhole) {
  torch::NoGradGuard no_grad;
  double largest = 0;
  for (const Case& c : Cases()) {
    const ModelConfig config = ConfigOf(c);
    const auto layer = MakeLayer(c);
    const torch::Tensor x = Inputs(2, 26, torch::kFloat32);
    const torch::Tensor whole = OutputOf(c, *layer, x);
    MixerState state = layer->InitialState(2);
    int64_t done = 0;
    for (const int64_t piece : {2, 17, 0, 1, 1, 5}) {
      torch::Tensor out;
      std::tie(out, state) =
          layer->Prefill(x.slice(1, done, done + piece), state,
                         MakeRotaryTable(config, piece, x, done));
      ASSERT_EQ(state.tensors()[0].scalar_type(), torch::kFloat32);
      if (piece == 0) continue;
      const double error =
          LargestError(Biased(*layer, out), whole.slice(1, done, done + piece));
      EXPECT_LT(error, 1e-5) << TextOf(c) << ", " << piece << " after " << done;
      largest = std::max(largest, error);
      done += piece;
    }
  }
  std::cout << "largest difference: " << largest << "\n";
}

// Each sequence is at its own length, whatever the padding holds.
TEST(Gated, LengthsLeavePadsOut) {
  torch::NoGradGuard no_grad;
  const std::vector<int64_t> lengths = {7, 0, 2};
  for (const Case& c : Cases()) {
    if (std::string(c.name) == "retnet" && !c.options.empty()) continue;
    const auto layer = MakeLayer(c);
    torch::Tensor x = Inputs(3, 7, torch::kFloat32);
    const torch::Tensor next = torch::randn({3, 1, 12});
    for (int64_t b = 0; b < 3; ++b) {
      x[b].slice(0, lengths[static_cast<size_t>(b)]) =
          std::numeric_limits<float>::quiet_NaN();
    }
    const MixerState state =
        layer->Prefill(x, layer->InitialState(3), {}, torch::tensor(lengths))
            .second;
    const torch::Tensor out = Biased(*layer, layer->Prefill(next, state).first);
    for (int64_t b = 0; b < 3; ++b) {
      const torch::Tensor row = torch::cat(
          {x[b].slice(0, 0, lengths[static_cast<size_t>(b)]), next[b]});
      const torch::Tensor want = OutputOf(c, *layer, row.unsqueeze(0))[0][-1];
      EXPECT_LT(LargestError(out[b][0], want), 1e-5) << TextOf(c) << ", " << b;
    }
  }
}

// Padding before and after the tokens, NaN in it, also after a norm with a
// bias: rows and gradients are those of the tokens alone.
TEST(Gated, MaskedTokensHaveNoInfluence) {
  for (const Case& c : Cases()) {
    ModelConfig config = ConfigOf(c);
    const auto layer = MakeLayer(c);
    const auto norm = MakeNorm(config);
    for (torch::Tensor& p : norm->parameters()) {
      torch::NoGradGuard no_grad;
      p.add_(torch::randn_like(p), 0.3);
    }
    const torch::Tensor tokens = Inputs(1, 9, torch::kFloat32);
    torch::Tensor x = torch::full(
        {1, 14, 12}, std::numeric_limits<float>::quiet_NaN(), torch::kFloat32);
    x.slice(1, 3, 12) = tokens;
    torch::Tensor mask = torch::zeros({1, 14}, torch::kBool);
    mask.slice(1, 3, 12) = true;
    std::vector<torch::Tensor> leaves = layer->parameters();
    for (const bool normed : {false, true}) {
      const auto run = [&](const torch::Tensor& rows,
                           const torch::Tensor& kept) {
        return layer->Unprojected(rows,
                                  MakeRotaryTable(config, rows.size(1), x),
                                  kept, normed ? norm.get() : nullptr);
      };
      const torch::Tensor given = run(x, mask).slice(1, 3, 12);
      const torch::Tensor want = run(tokens, {});
      EXPECT_LT(LargestError(given, want), 1e-5) << TextOf(c);
      const auto gradients = [&](const torch::Tensor& out) {
        return torch::autograd::grad({out.pow(2).sum()}, leaves, {}, {}, false,
                                     /*allow_unused=*/true);
      };
      const auto ours = gradients(given), theirs = gradients(want);
      for (size_t i = 0; i < leaves.size(); ++i) {
        ASSERT_EQ(ours[i].defined(), theirs[i].defined());
        if (!ours[i].defined()) continue;  // of the output projection
        EXPECT_LT(LargestError(ours[i], theirs[i]),
                  1e-5 * (1 + theirs[i].abs().max().item<double>()))
            << TextOf(c) << ", " << i;
      }
    }
  }
}

// A token in the middle that is not kept: the state passes it unchanged.
TEST(Gated, AHoleIsNoToken) {
  torch::NoGradGuard no_grad;
  for (const char* name : {"retnet", "lightning", "gla", "hgrn2"}) {
    const Case c = {name, {}};
    const auto layer = MakeLayer(c);
    const torch::Tensor x = Inputs(2, 11, torch::kFloat32);
    torch::Tensor mask = torch::ones({2, 11}, torch::kBool);
    mask.slice(1, 4, 6) = false;
    const torch::Tensor given = OutputOf(c, *layer, x, mask);
    const torch::Tensor want =
        OutputOf(c, *layer, torch::cat({x.slice(1, 0, 4), x.slice(1, 6)}, 1));
    EXPECT_LT(LargestError(given.slice(1, 6), want.slice(1, 4)), 1e-5) << name;
  }
}

// Names, shapes and order within each kind are those of the weight file.
TEST(Gated, OwnsTheTensorsOfTheSpec) {
  for (const Case& c : Cases()) {
    const ModelConfig config = ConfigOf(c);
    const auto layer = MakeLayer(c);
    std::map<std::string, std::vector<int64_t>> own;
    for (const auto& item : layer->named_parameters()) {
      EXPECT_FALSE(IsBuffer(item.key())) << item.key();
      own[item.key()] = item.value().sizes().vec();
    }
    for (const auto& item : layer->named_buffers()) {
      EXPECT_TRUE(IsBuffer(item.key())) << item.key();
      own[item.key()] = item.value().sizes().vec();
    }
    std::map<std::string, std::vector<int64_t>> wanted;
    for (const auto& [name, shape] : Spec(config.attention).weights(config)) {
      wanted[name] = shape;
    }
    EXPECT_EQ(own, wanted) << TextOf(c);
  }
}

TEST(Gated, BeginsAsThePapersDo) {
  torch::manual_seed(3);
  const auto beginning = [](const Case& c, int64_t index) {
    const auto layer = MakeMixer(ConfigOf(c), {.causal = true, .index = index});
    return plain::CopyWeights(*layer, torch::kFloat64);
  };
  const torch::Tensor retnet = beginning({"retnet", {}}, 0)["log_decay"];
  EXPECT_NEAR(retnet[3].item<double>(), std::log(1 - 1.0 / 256), 1e-7);
  for (const int64_t l : {0, 2}) {
    const torch::Tensor slopes = beginning({"lightning", {}}, l)["log_decay"];
    const double depth = 1 - static_cast<double>(l) / (2 + 1e-5) + 1e-5;
    EXPECT_NEAR(slopes[0].item<double>(), -depth / 4, 1e-7) << l;
    EXPECT_NEAR(slopes[3].item<double>(), -depth / 256, 1e-7) << l;
    EXPECT_NEAR(beginning({"hgrn2", {}}, l)["lower_bound"][0].item<double>(),
                static_cast<double>(l) / 3, 1e-7);
  }
  plain::Weights kda = beginning({"kda", {}}, 0);
  const torch::Tensor steps = torch::log(1 + kda["dt_bias"].exp());
  EXPECT_GE(steps.min().item<double>(), 0.99e-3);
  EXPECT_LE(steps.max().item<double>(), 0.101);
  EXPECT_GE(kda["A_log"].min().item<double>(), 0.0);
  EXPECT_LE(kda["A_log"].max().item<double>(), std::log(16.0) + 1e-6);
  plain::Weights mamba = beginning({"mamba2", {}}, 0);
  EXPECT_TRUE((mamba["D"] == 1).all().item<bool>());
  EXPECT_TRUE((mamba["norm.weight"] == 1).all().item<bool>());
  EXPECT_LE(mamba["convolution.weight"].abs().max().item<double>(), 0.5);
  plain::Weights first = beginning({"mamba1", {}}, 0);
  EXPECT_TRUE((first["D"] == 1).all().item<bool>());
  for (const int64_t n : {0, 5}) {
    EXPECT_NEAR(first["A_log"][7][n].item<double>(),
                std::log(static_cast<double>(n + 1)), 1e-6);
  }
  plain::Weights gla = beginning({"gla", {}}, 0);
  EXPECT_TRUE((gla["decay_up_projection.bias"] == 0).all().item<bool>());
}

// 16-bit weights: gates stay float32, results are near those of float32.
TEST(Gated, RunsInHalfPrecision) {
  torch::NoGradGuard no_grad;
  for (const Case& c : Cases()) {
    const auto layer = MakeLayer(c);
    const torch::Tensor x = Inputs(2, 21, torch::kFloat32);
    const torch::Tensor want = OutputOf(c, *layer, x);
    layer->to(torch::kBFloat16);
    const torch::Tensor given = OutputOf(c, *layer, x.to(torch::kBFloat16));
    EXPECT_EQ(given.scalar_type(), torch::kBFloat16);
    // A rounding of 2^-9 in each of a dozen numbers in sequence.
    EXPECT_LT(LargestError(given.to(torch::kFloat64), want), 0.15) << TextOf(c);
    const MixerState state =
        layer
            ->Prefill(x.to(torch::kBFloat16), layer->InitialState(2),
                      MakeRotaryTable(ConfigOf(c), 21, given))
            .second;
    EXPECT_EQ(state.tensors()[0].scalar_type(), torch::kFloat32);
  }
}

}  // namespace gated_test
}  // namespace tarn::nn
