// The C++ side of feature maps: callers' functions, sequences against steps,
// widths against features, errors. Formulas are held by tests/python.
#include "torch_ops/feature_maps/feature_maps.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "core/error.h"

namespace tarn::ops {
namespace feature_maps_test {

constexpr int64_t kKey = 5;

// Random operands of 2 sequences, 11 tokens, 2 heads, 4 value heads.
struct Call {
  torch::Tensor queries = torch::randn({2, 11, 2, kKey});
  torch::Tensor keys = torch::randn({2, 11, 2, kKey});
  torch::Tensor values = torch::randn({2, 11, 4, 3});
};

MappedAttentionOptions Named(FeatureMap map) {
  MappedAttentionOptions options;
  options.features.map = map;
  if (const int64_t frequencies = FeatureFrequencies(map, kKey)) {
    options.features.omega = DrawOmega(kKey, frequencies, true, 7);
  }
  return options;
}

constexpr FeatureMap kMaps[] = {
    FeatureMap::kElu1,          FeatureMap::kRelu,        FeatureMap::kRelu2,
    FeatureMap::kSoftplus,      FeatureMap::kPoly2,       FeatureMap::kFavor,
    FeatureMap::kFavorPositive, FeatureMap::kSmoothedRff, FeatureMap::kGrf};

class OpsFeatureMaps : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

TEST_F(OpsFeatureMaps, WidthIsThatOfTheFeatures) {
  for (const FeatureMap map : kMaps) {
    const MappedAttentionOptions options = Named(map);
    const torch::Tensor phi =
        Features(options.features, torch::randn({3, kKey}));
    EXPECT_EQ(FeatureWidth(map, kKey), phi.size(-1)) << Name(map);
  }
}

TEST_F(OpsFeatureMaps, StepsContinueAPrefill) {
  const Call call;
  for (const FeatureMap map : kMaps) {
    const MappedAttentionOptions options = Named(map);
    const torch::Tensor whole =
        MappedLinearAttention(call.queries, call.keys, call.values, options)
            .out;
    MappedAttentionResult part = MappedLinearAttention(
        call.queries.narrow(1, 0, 6), call.keys.narrow(1, 0, 6),
        call.values.narrow(1, 0, 6), options, {}, /*return_state=*/true);
    for (int64_t t = 6; t < 11; ++t) {
      part = MappedLinearAttentionStep(
          call.queries.select(1, t), call.keys.select(1, t),
          call.values.select(1, t), options, part.state);
      EXPECT_TRUE(torch::allclose(part.out, whole.select(1, t), 1e-4, 1e-5))
          << Name(map) << " token " << t;
    }
  }
}

TEST_F(OpsFeatureMaps, FunctionsOfTheCallerReplaceTheMap) {
  const Call call;
  MappedAttentionOptions own;
  own.features.query_fn = [](const torch::Tensor& x) {
    return torch::relu(x).square();
  };
  own.features.key_fn = own.features.query_fn;
  EXPECT_EQ(Denominator::kSigned, DefaultDenominator(own.features));
  own.denominator = Denominator::kExact;
  const auto run = [&](const MappedAttentionOptions& options) {
    return MappedLinearAttention(call.queries, call.keys, call.values, options)
        .out;
  };
  EXPECT_TRUE(
      torch::allclose(run(own), run(Named(FeatureMap::kRelu2)), 1e-4, 1e-5));
  MappedAttentionOptions grf = Named(FeatureMap::kGrf);
  const torch::Tensor relu = run(grf);
  grf.features.kernel_fn = [](const torch::Tensor& u) { return u.relu(); };
  grf.denominator = Denominator::kExact;
  EXPECT_TRUE(torch::equal(relu, run(grf)));
}

TEST_F(OpsFeatureMaps, ClampedDenominatorsAreCounted) {
  // Keys 1 and -1 under query 1: the second denominator is 0.
  const torch::Tensor queries = torch::ones({1, 2, 1, 1});
  const torch::Tensor keys = torch::tensor({1.0f, -1.0f}).view({1, 2, 1, 1});
  const MappedAttentionResult r = MappedLinearAttention(
      queries, keys, keys, Named(FeatureMap::kIdentity), {}, true);
  EXPECT_EQ(1, r.clamped.item<int64_t>());
  EXPECT_EQ(2.0f, r.state.extra.item<float>());
  EXPECT_TRUE(r.out.isfinite().all().item<bool>());
}

TEST_F(OpsFeatureMaps, ErrorsNameArgumentWantedAndGiven) {
  const Call call;
  MappedAttentionOptions options = Named(FeatureMap::kRff);
  options.features.stabilise = true;
  const auto run = [&] {
    MappedLinearAttention(call.queries, call.keys, call.values, options);
  };
  EXPECT_THROW(run(), c10::ValueError);
  options = Named(FeatureMap::kFavor);
  options.features.omega.reset();
  EXPECT_THROW(run(), c10::ValueError);
  options = MappedAttentionOptions();
  options.features.query_fn = [](const torch::Tensor& x) { return x; };
  EXPECT_THROW(run(), c10::ValueError);
  EXPECT_THROW(FeatureWidth(FeatureMap::kSmoothedRff, 2), ArgumentError);
  EXPECT_THROW(DrawOmega(0, 1, false, 0), ArgumentError);
}

}  // namespace feature_maps_test
}  // namespace tarn::ops
