// The softmax operators as C++ modules call them; tests/python holds them
// against their definitions.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <vector>

#include "torch_ops/softmax/attention.h"

namespace tarn::ops {
namespace attention_masks_test {

struct Tensors {
  at::Tensor queries, keys, values;  // [2, T, 2, 6], [2, S, 2, 6], [2, S, 2, 5]
};

Tensors Random(int64_t seq_len, int64_t key_len) {
  torch::manual_seed(7);
  return {torch::randn({2, seq_len, 2, 6}), torch::randn({2, key_len, 2, 6}),
          torch::randn({2, key_len, 2, 5})};
}

// Softmax over the pairs of `allowed` [T, S], every row with at least one.
at::Tensor Plain(const Tensors& t, const at::Tensor& allowed, double scale) {
  const at::Tensor scores = scale * at::matmul(t.queries.transpose(1, 2),
                                               t.keys.permute({0, 2, 3, 1}));
  return at::matmul(
             scores.masked_fill(allowed.logical_not(), -INFINITY).softmax(-1),
             t.values.transpose(1, 2))
      .transpose(1, 2);
}

void ExpectClose(const at::Tensor& a, const at::Tensor& b, double most = 1e-5) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LT((a - b).abs().max().item<double>(), most);
}

TEST(OpsAttention, FullReadsWhatEveryMaskAllows) {
  const Tensors t = Random(12, 15);
  AttentionMasks masks;
  masks.causal = true;
  masks.causal_offset = 3;
  masks.key_lengths = torch::tensor({14, 14});
  masks.attention_mask = torch::arange(15).remainder(4).ne(2).expand({12, 15});
  SoftmaxOptions options;
  options.softmax_temp = 0.25;
  const at::Tensor ahead =
      torch::arange(15).unsqueeze(0) - torch::arange(12).unsqueeze(1);
  const at::Tensor allowed = ahead.le(3)
                                 .logical_and(*masks.attention_mask)
                                 .logical_and(torch::arange(15).lt(14));
  const AttentionResult result =
      FullAttention(t.queries, t.keys, t.values, masks, options,
                    /*need_weights=*/true);
  ExpectClose(result.out, Plain(t, allowed, 0.25));
  EXPECT_EQ(result.weights.sizes(), at::IntArrayRef({2, 2, 12, 15}));
  ExpectClose(result.weights.sum(-1), torch::ones({2, 2, 12}));
  const AttentionResult plain =
      FullAttention(t.queries, t.keys, t.values, masks, options);
  EXPECT_TRUE(plain.out.equal(result.out));
  EXPECT_FALSE(plain.weights.defined());
}

TEST(OpsAttention, LocalIsABand) {
  const Tensors t = Random(40, 40);
  const at::Tensor ahead =
      torch::arange(40).unsqueeze(0) - torch::arange(40).unsqueeze(1);
  const at::Tensor band = ahead.ge(-3).logical_and(ahead.lt(3));
  ExpectClose(LocalAttention(t.queries, t.keys, t.values, 6),
              Plain(t, band, 1 / std::sqrt(6.0)));
}

TEST(OpsAttention, TopkOfAllKeysIsFull) {
  const Tensors t = Random(9, 20);
  const at::Tensor full = FullAttention(t.queries, t.keys, t.values).out;
  ExpectClose(ExactTopkAttention(t.queries, t.keys, t.values, 20).out, full);
  const AttentionResult some =
      ExactTopkAttention(t.queries, t.keys, t.values, 4, {}, {}, true);
  EXPECT_TRUE(some.weights.gt(0).sum(-1).eq(4).all().item<bool>());
}

TEST(OpsAttention, GradientsReachEveryInputAndTheBias) {
  Tensors t = Random(10, 11);
  at::Tensor bias = torch::zeros({2, 10, 11});
  for (at::Tensor* x : {&t.queries, &t.keys, &t.values, &bias}) {
    x->requires_grad_();
  }
  SoftmaxOptions options;
  options.bias = bias;
  options.dropout = DrawDropout(0.1);
  for (const at::Tensor& out :
       {FullAttention(t.queries, t.keys, t.values, {}, options).out,
        LocalAttention(t.queries, t.keys, t.values, 5, {}, options),
        ExactTopkAttention(t.queries, t.keys, t.values, 3, {}, options).out}) {
    const auto grads = torch::autograd::grad(
        {out.square().sum()}, {t.queries, t.keys, t.values, bias});
    for (const at::Tensor& grad : grads) {
      EXPECT_GT(grad.abs().max().item<double>(), 1e-4);
    }
  }
}

TEST(OpsAttention, AllowedPairsJoinsEveryTerm) {
  const Tensors t = Random(3, 4);
  EXPECT_FALSE(AllowedPairs({}, t.queries, t.keys).defined());
  AttentionMasks masks;
  masks.causal = true;
  masks.key_lengths = torch::tensor({4, 1});
  const at::Tensor allowed = AllowedPairs(masks, t.queries, t.keys);
  ASSERT_EQ(allowed.sizes(), at::IntArrayRef({2, 1, 3, 4}));
  EXPECT_EQ(allowed[0].sum().item<int64_t>(), 1 + 2 + 3);
  EXPECT_EQ(allowed[1].sum().item<int64_t>(), 3);
}

TEST(OpsAttention, ErrorsNameTheArgument) {
  const Tensors t = Random(3, 4);
  AttentionMasks masks;
  masks.attention_mask = torch::ones({3, 3}, torch::kBool);
  const auto expect = [&](const char* name, const auto& call) {
    try {
      call();
      FAIL() << name << " was taken";
    } catch (const c10::ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos)
          << error.what();
    }
  };
  expect("attention_mask",
         [&] { FullAttention(t.queries, t.keys, t.values, masks); });
  expect("local_context",
         [&] { LocalAttention(t.queries, t.keys, t.values, 0); });
  expect("topk", [&] { ExactTopkAttention(t.queries, t.keys, t.values, 0); });
  expect("seed", [&] {
    SoftmaxOptions options;
    options.dropout.probability = 0.5;
    FullAttention(t.queries, t.keys, t.values, {}, options);
  });
}

}  // namespace attention_masks_test
}  // namespace tarn::ops
