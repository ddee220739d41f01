// The encoder layer and stack against plain operations and torch's own layer.
#include "torch_nn/layers/encoder.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <cmath>

#include "core/text.h"
#include "reference/torch/plain_model.h"
#include "torch_nn/layers/decoder.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/call.h"

namespace tarn::nn {
namespace encoder_test {

using plain::LargestError;

constexpr int64_t kSeqLen = 37;  // no multiple of any chunk

// d_model 24, 3 heads, keys 8 wide, values 5: no two widths equal.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.d_model = 24;
  config.n_heads = 3;
  config.d_key = 8;
  config.d_value = 5;
  config.d_ff = 40;
  config.n_layers = 2;
  config.positions = Positions::kNone;
  FinishConfig(config);
  return config;
}

TEST(Encoder, EqualsPlainLayers) {
  for (const Norm norm : {Norm::kPost, Norm::kPre}) {
    for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
      for (const bool final_norm : {false, true}) {
        ModelConfig config = SmallConfig();
        config.norm = norm;
        config.activation = activation;
        config.final_norm = final_norm;
        config.norm_eps = 0.01;  // large, so that its place would show
        torch::manual_seed(5);
        Encoder encoder(config);
        encoder->to(torch::kFloat64);
        torch::NoGradGuard no_grad;
        for (torch::Tensor& p : encoder->parameters()) p.normal_(0.3, 0.3);
        const plain::Weights weights =
            plain::CopyWeights(*encoder, torch::kFloat64);
        const torch::Tensor x = torch::randn({2, 9, 24}, torch::kFloat64);
        torch::Tensor expected = x;
        for (const char* layer : {"layers.0", "layers.1"}) {
          expected = plain::Layer(config, weights, layer, expected,
                                  plain::Causal(expected.size(1)));
        }
        if (final_norm) {
          expected = plain::Normed(config, weights, "norm", expected);
        }
        EXPECT_LT(LargestError(encoder(x), expected), 1e-10)
            << Name(norm) << " " << Name(activation) << " " << final_norm;
      }
    }
  }
}

// Dropout comes after attention, after the activation and after linear2, and
// draws in that order.
TEST(EncoderLayer, DropoutPlaces) {
  for (const Norm norm : {Norm::kPost, Norm::kPre}) {
    ModelConfig config = SmallConfig();
    config.norm = norm;
    config.dropout = 0.3;
    torch::manual_seed(6);
    EncoderLayer layer(config);
    torch::NoGradGuard no_grad;
    const plain::Weights weights = plain::CopyWeights(*layer, torch::kFloat32);
    const torch::Tensor x = torch::randn({2, 9, 24});
    torch::manual_seed(7);
    const torch::Tensor given = layer(x);
    torch::manual_seed(7);
    const auto drop = [](const torch::Tensor& y) {
      return ops::ComposedDropout(y, 0.3, ops::DrawDropout(0.3).seed);
    };
    const auto feed_forward = [&](const torch::Tensor& y) {
      return plain::Affine(
          weights, "linear2",
          drop(torch::gelu(plain::Affine(weights, "linear1", y))));
    };
    const NormLayer& norm1 = *layer->sums().norm(0);
    const NormLayer& norm2 = *layer->sums().norm(1);
    torch::Tensor expected;
    if (norm == Norm::kPre) {
      const torch::Tensor x1 =
          x + drop(layer->attention->forward(norm1.forward(x)));
      expected = x1 + drop(feed_forward(norm2.forward(x1)));
    } else {
      const torch::Tensor x1 =
          norm1.forward(x + drop(layer->attention->forward(x)));
      expected = norm2.forward(x1 + drop(feed_forward(x1)));
    }
    EXPECT_TRUE(torch::allclose(given, expected, 1e-5, 1e-5)) << Name(norm);
    layer->eval();
    EXPECT_TRUE(torch::equal(layer(x), layer(x)));
  }
}

// A part that reads the row before each: ragged pieces equal the whole sequence
// whatever is past their ends, and rows that are not kept count as none.
TEST(EncoderLayer, ChannelMixIgnoresPadding) {
  for (const Norm norm : {Norm::kPost, Norm::kPre}) {
    ModelConfig config = SmallConfig();
    config.norm = norm;
    config.feed_forward = FeedForwardOf("channel-mix");
    torch::manual_seed(9);
    EncoderLayer layer(config);
    layer->to(torch::kFloat64);
    layer->eval();
    torch::NoGradGuard no_grad;
    for (torch::Tensor& p : layer->parameters()) p.normal_(0.3, 0.3);
    const torch::Tensor x = torch::randn({3, 9, 24}, torch::kFloat64);
    const torch::Tensor whole = layer(x);
    MixerState state = layer->attention->InitialState(3);
    EXPECT_EQ(state["channel_shift"].sizes(), torch::IntArrayRef({3, 24}));
    // Sequence 0 takes 4 and 5 rows, 1 takes 0 and 3, 2 takes 5 and none.
    const torch::Tensor first = torch::tensor({4, 0, 5}, torch::kInt64);
    const torch::Tensor second = torch::tensor({5, 3, 0}, torch::kInt64);
    torch::Tensor piece = x.slice(1, 0, 5).clone();
    piece[0].slice(0, 4).fill_(NAN);
    piece[1].fill_(NAN);
    const torch::Tensor a = layer->Prefill(piece, state, {}, first);
    piece = torch::full({3, 5, 24}, NAN, torch::kFloat64);
    piece[0].copy_(x[0].slice(0, 4));
    piece[1].slice(0, 0, 3).copy_(x[1].slice(0, 0, 3));
    const torch::Tensor b = layer->Prefill(piece, state, {}, second);
    const torch::Tensor pieces[] = {a[0].slice(0, 0, 4), b[0],
                                    b[1].slice(0, 0, 3), a[2]};
    const torch::Tensor parts[] = {
        whole[0].slice(0, 0, 4), whole[0].slice(0, 4), whole[1].slice(0, 0, 3),
        whole[2].slice(0, 0, 5)};
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(LargestError(pieces[i], parts[i]), 1e-12) << i;
    }
    EXPECT_TRUE(torch::equal(layer->Prefill(piece.slice(1, 0, 0), state),
                             a.slice(1, 0, 0)));

    torch::Tensor padded = torch::cat({x, x.slice(1, 0, 2)}, 1);
    padded.slice(1, 9).fill_(NAN);
    torch::Tensor kept = torch::ones({3, 11}, torch::kBool);
    kept.slice(1, 9).fill_(false);
    const auto masked = [&](int64_t shift) {
      return layer(padded.roll(shift, 1), RotaryTable{}, kept.roll(shift, 1));
    };
    EXPECT_LT(LargestError(masked(0).slice(1, 0, 9), whole), 1e-12);
    // Pads in front of a sequence change nothing, either.
    EXPECT_LT(LargestError(masked(2).slice(1, 2), whole), 1e-12);
  }
}

TEST(EncoderLayer, ChannelMixBeginsByChannelAndDepth) {
  ModelConfig config = SmallConfig();  // 24 channels, 2 layers
  config.feed_forward = FeedForwardOf("channel-mix");
  Encoder encoder(config);
  for (int64_t i = 0; i < 2; ++i) {
    const torch::Tensor shift =
        encoder->named_parameters()[StrCat("layers.", i, ".token_shift")];
    for (int64_t c = 0; c < 24; ++c) {
      const double share = static_cast<double>(c) / 24;
      EXPECT_NEAR(shift[c].item<double>(),
                  1 - std::pow(share, i == 0 ? 1.0 : 1.0 / 16), 1e-6);
    }
  }
}

TEST(EncoderLayer, ChannelMixWantsACausalStack) {
  ModelConfig config = SmallConfig();
  config.feed_forward = FeedForwardOf("channel-mix");
  EXPECT_THROW(EncoderLayer(config, MixerPlace{.causal = false}),
               ArgumentError);
  EXPECT_THROW(DecoderLayerImpl(config, 0), ArgumentError);
  MixerState other = EncoderLayer(SmallConfig())->attention->InitialState(1);
  EXPECT_THROW(EncoderLayer(config)->Prefill(torch::zeros({1, 2, 24}), other),
               ArgumentError);
}

void Copy(torch::Tensor to, const torch::Tensor& from) { to.copy_(from); }

// Copies the weights to torch's layer: in_proj holds q, k and v in thirds.
void CopyLayer(torch::nn::TransformerEncoderLayerImpl* to,
               EncoderLayerImpl* from) {
  const auto weights = from->named_parameters();
  const auto projection = [&](const char* name, const char* part) {
    return weights[StrCat("attention.", name, "_projection.", part)];
  };
  const auto packed = [&](const char* part) {
    return torch::cat({projection("query", part), projection("key", part),
                       projection("value", part)});
  };
  Copy(to->self_attn->in_proj_weight, packed("weight"));
  Copy(to->self_attn->in_proj_bias, packed("bias"));
  Copy(to->self_attn->out_proj->weight, projection("out", "weight"));
  Copy(to->self_attn->out_proj->bias, projection("out", "bias"));
  Copy(to->linear1->weight, weights["linear1.weight"]);
  Copy(to->linear1->bias, weights["linear1.bias"]);
  Copy(to->linear2->weight, weights["linear2.weight"]);
  Copy(to->linear2->bias, weights["linear2.bias"]);
  Copy(to->norm1->weight, weights["norm1.weight"]);
  Copy(to->norm1->bias, weights["norm1.bias"]);
  Copy(to->norm2->weight, weights["norm2.weight"]);
  Copy(to->norm2->bias, weights["norm2.bias"]);
}

TEST(Encoder, PostNormEqualsTorchs) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    ModelConfig config = SmallConfig();
    config.attention = MixerKind("full");
    config.norm = Norm::kPost;
    config.activation = activation;
    config.d_value = config.d_key;  // torch knows one width only
    config.final_norm = false;
    torch::manual_seed(8);
    Encoder encoder(config);
    torch::nn::TransformerEncoderLayerOptions options(24, 3);
    options.dim_feedforward(40).dropout(0.0);
    if (activation == Activation::kRelu) {
      options.activation(torch::kReLU);
    } else {
      options.activation(torch::kGELU);
    }
    torch::nn::TransformerEncoder torchs(torch::nn::TransformerEncoderOptions(
        torch::nn::TransformerEncoderLayer(options), config.n_layers));
    torch::NoGradGuard no_grad;
    for (torch::Tensor& p : encoder->parameters()) {
      p.add_(torch::randn_like(p), 0.1);  // norms are not 1 and 0 any more
    }
    for (int64_t i = 0; i < config.n_layers; ++i) {
      CopyLayer(torchs->layers[i]->as<torch::nn::TransformerEncoderLayer>(),
                encoder->layers[i]->as<EncoderLayer>());
    }
    const torch::Tensor x = torch::randn({2, kSeqLen, 24});
    const torch::Tensor mask =
        torch::full({kSeqLen, kSeqLen}, -INFINITY).triu(1);
    const torch::Tensor expected =
        torchs(x.transpose(0, 1), mask).transpose(0, 1);
    EXPECT_LT(LargestError(encoder(x), expected), 1e-5) << Name(activation);
  }
}

}  // namespace encoder_test
}  // namespace tarn::nn
