// Random draws of models: features redrawn by update, hashes the same in eval.
#include <gtest/gtest.h>

#include "core/feature_map.h"
#include "core/test_util.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/ragged_batch.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace models_test {

TEST(Model, HashingKindsAreDeterministicInEvalAndHaveNoRecurrentForm) {
  for (const Arch arch : {Arch::kDecoder, Arch::kEncoder, Arch::kSeq2seq}) {
    for (const ModelConfig& config : HashVariants(arch)) {
      const auto model = EvalModel(config);
      const Batch batch = RaggedBatch(config);
      const torch::Tensor logits = model->Logits(batch);
      EXPECT_TRUE(torch::equal(logits, model->Logits(batch)));
      logits.select(0, 0).tanh().sum().backward();
      for (const auto& item : model->named_parameters()) {
        EXPECT_TRUE(item.value().grad().defined() &&
                    torch::isfinite(item.value().grad()).all().item<bool>())
            << item.key() << " of " << TextOf(config);
      }
      if (arch == Arch::kDecoder) {
        auto& decoder = dynamic_cast<LanguageModelImpl&>(*model);
        const Error error = ErrorOf([&] { decoder.InitialState(1); });
        EXPECT_EQ(error.code(), ErrorCode::kArgument);
        EXPECT_TRUE(Contains(error.given(), Name(config.attention)));
        EXPECT_TRUE(Contains(error.given(), "depend on later tokens"));
      }
    }
  }
}

// Random features are drawn in training only, a function of seed, layer and
// update.
TEST(Model, RandomFeaturesAreRedrawn) {
  ModelConfig config = SmallConfig(Arch::kSeq2seq);
  SetKey(config, "feature_map", FeatureMap::kFavor);
  SetKey(config, "redraw", 2);
  const auto model = EvalModel(config, 1), twin = EvalModel(config, 2);
  const auto omegas = [](const std::shared_ptr<ModelImpl>& of) {
    std::vector<torch::Tensor> tensors;
    for (const auto& buffer : of->buffers()) tensors.push_back(buffer.clone());
    return tensors;
  };
  const auto first = omegas(model);
  ASSERT_EQ(first.size(), 2u + 2u * 3u);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i], omegas(twin)[i]));
    for (size_t k = 0; k < i; ++k)
      EXPECT_FALSE(torch::equal(first[i], first[k]));
  }
  model->RedrawFeatures(1);
  EXPECT_TRUE(torch::equal(first[0], omegas(model)[0]));
  model->RedrawFeatures(2);
  EXPECT_FALSE(torch::equal(first[0], omegas(model)[0]));
  twin->RedrawFeatures(4);
  twin->RedrawFeatures(2);
  EXPECT_TRUE(torch::equal(omegas(twin)[5], omegas(model)[5]));
  SetKey(config, "redraw", 0);
  const auto fixed = EvalModel(config);
  fixed->RedrawFeatures(2);
  EXPECT_TRUE(torch::equal(first[0], omegas(fixed)[0]));
}

// Layers of a pattern redraw as their own options say.
TEST(Model, LayersRedrawByTheirOwnOptions) {
  ModelConfig config = SmallConfig(Arch::kDecoder);
  config.n_layers = 3;
  config.layers = LayersFromText(
      "full,linear:feature_map=favor:redraw=2,linear:feature_map=grf");
  const auto model = EvalModel(config);
  const auto omega = [&](int64_t i) {
    return model
        ->named_buffers()[StrCat("layers.", i, ".attention.inner_",
                                 "attention.feature_map.omega")]
        .clone();
  };
  ASSERT_EQ(model->named_buffers().size(), 2u);
  const torch::Tensor second = omega(1), third = omega(2);
  model->RedrawFeatures(1);
  EXPECT_TRUE(torch::equal(omega(1), second));
  EXPECT_FALSE(torch::equal(omega(2), third));
  model->RedrawFeatures(2);
  EXPECT_FALSE(torch::equal(omega(1), second));
}

}  // namespace models_test
}  // namespace tarn::nn
