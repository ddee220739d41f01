// Every architecture under the base of model.h: names and values against the
// oracle, padding that has no influence, weight files, errors.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "core/feature_map.h"
#include "core/test_util.h"
#include "torch_nn/models/classifier.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/ragged_batch.h"
#include "torch_nn/models/seq2seq.h"
#include "torch_nn/state/lengths.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace models_test {

using plain::LargestError;

TEST(Model, TensorsAreThoseOfTheConfig) {
  for (const Arch arch : kArchs) {
    for (const ModelConfig& config : Variants(arch)) {
      const auto model = MakeModel(config);
      EXPECT_TRUE(model->is_training());
      const auto parameters = model->named_parameters();
      const auto buffers = model->named_buffers();
      std::map<std::string, std::vector<int64_t>> shapes;
      for (const auto& [name, shape] : WeightShapes(config)) {
        shapes[name] = shape;
      }
      ASSERT_EQ(parameters.size() + buffers.size(), shapes.size())
          << TextOf(config);
      for (const auto& item : buffers) {
        EXPECT_TRUE(IsBuffer(item.key())) << item.key();
        EXPECT_EQ(item.value().sizes().vec(), shapes.at(item.key()));
      }
      for (const auto& item : parameters) {
        EXPECT_EQ(item.value().sizes().vec(), shapes.at(item.key()))
            << item.key();
        EXPECT_TRUE(item.value().requires_grad());
      }
      int64_t total = 0;
      for (const auto& tensor : model->parameters()) total += tensor.numel();
      EXPECT_EQ(total, ParameterCount(config));
    }
  }
}

// A ragged batch against each sequence alone in double.
TEST(Model, EqualsPlainModel) {
  torch::set_num_threads(1);
  torch::NoGradGuard no_grad;
  double largest = 0;
  for (const Arch arch : kArchs) {
    for (const ModelConfig& config : Variants(arch)) {
      const auto model = EvalModel(config);
      const auto weights = plain::CopyWeights(*model, torch::kFloat64);
      const Batch batch = RaggedBatch(config);
      const torch::Tensor logits = model->Logits(batch);
      for (int64_t b = 0; b < 3; ++b) {
        const double error =
            LargestError(Valid(logits, batch, b),
                         PlainLogits(config, weights, RowOf(batch, b))[0]);
        EXPECT_LT(error, 3e-5) << TextOf(config) << ", row " << b;
        largest = std::max(largest, error);
      }
    }
  }
  RecordProperty("largest_difference", StrCat(largest));
}

TEST(Model, PaddingAndBatchMatesHaveNoInfluence) {
  torch::NoGradGuard no_grad;
  for (const Arch arch : kArchs) {
    std::vector<ModelConfig> configs = Variants(arch);
    if (arch <= Arch::kSeq2seq) {
      const auto hashed = HashVariants(arch);
      EXPECT_EQ(hashed.size(), arch == Arch::kEncoder   ? 3u
                               : arch == Arch::kDecoder ? 2u
                                                        : 1u);
      configs.insert(configs.end(), hashed.begin(), hashed.end());
    }
    for (const ModelConfig& config : configs) {
      const auto model = EvalModel(config);
      const Batch batch = RaggedBatch(config);
      Batch other = batch;  // other tokens where nothing counts
      const auto garble = [](torch::Tensor& tokens,
                             const torch::Tensor& lengths) {
        if (!tokens.defined()) return;
        const torch::Tensor kept = PrefixMask("test", lengths, tokens);
        tokens = torch::where(kept, tokens, (tokens + 5) % kVocab);
      };
      garble(other.tokens, other.lengths);
      garble(other.target_in, other.target_lengths);
      if (other.frames.defined()) {  // which may hold anything
        other.frames = other.frames.clone();
        other.frames[1].slice(0, 1).fill_(std::nan(""));
        other.frames[2].slice(0, 5).fill_(INFINITY);
      }
      const torch::Tensor a = model->Logits(batch), b = model->Logits(other);
      for (int64_t row = 0; row < 3; ++row) {
        EXPECT_TRUE(torch::equal(Valid(a, batch, row), Valid(b, batch, row)))
            << TextOf(config) << ", row " << row;
        const torch::Tensor alone = model->Logits(RowOf(batch, row));
        EXPECT_LT(LargestError(alone[0], Valid(a, batch, row)), 1e-5)
            << TextOf(config) << ", row " << row;
      }
    }
  }
}

// Gradients of all parameters, in double, against autograd through the oracle.
TEST(Model, GradientsEqualThoseOfThePlainModel) {
  for (const Arch arch : kArchs) {
    for (const ModelConfig& config : Variants(arch)) {
      // Tables of angles are float32 in the models.
      const bool angles = config.positions == Positions::kSinusoidal ||
                          config.positions == Positions::kRotary;
      const double tolerance = angles ? 1e-6 : 1e-9;
      const auto model = EvalModel(config);
      model->to(torch::kFloat64);
      const auto weights = plain::CopyWeights(*model, torch::kFloat64);
      Batch batch = RaggedBatch(config);
      if (batch.frames.defined()) {  // padding must not reach gradients either
        batch.frames = batch.frames.to(torch::kFloat64);
        batch.frames[1].slice(0, 1).fill_(std::nan(""));
      }
      const torch::Tensor logits = model->Logits(batch);
      torch::Tensor loss = torch::zeros({}, torch::kFloat64);
      torch::Tensor expected = torch::zeros({}, torch::kFloat64);
      for (int64_t b = 0; b < 3; ++b) {
        loss = loss + Valid(logits, batch, b).tanh().sum();
        expected = expected +
                   PlainLogits(config, weights, RowOf(batch, b)).tanh().sum();
      }
      loss.backward();
      expected.backward();
      for (const auto& item : model->named_parameters()) {
        const torch::Tensor want = weights.at(item.key()).grad();
        ASSERT_TRUE(item.value().grad().defined()) << item.key();
        EXPECT_LT(LargestError(item.value().grad(), want), tolerance)
            << item.key() << " of " << TextOf(config);
      }
    }
  }
}

TEST(Model, EmptyBatchesSequencesAndRows) {
  torch::NoGradGuard no_grad;
  for (const Arch arch : kArchs) {
    for (const ModelConfig& config : Variants(arch)) {
      const auto model = EvalModel(config);
      const bool pairs = arch == Arch::kSeq2seq;
      for (const auto& [batch_size, source, target] :
           std::vector<std::array<int64_t, 3>>{
               {0, 5, 4}, {2, 0, 3}, {2, 3, 0}, {1, 1, 1}}) {
        Batch batch;
        if (config.ReadsFrames()) {
          batch.frames = torch::randn({batch_size, source, config.input_dim});
        } else {
          batch.tokens = Tokens(batch_size, source);
        }
        if (pairs) batch.target_in = Tokens(batch_size, target);
        const torch::Tensor logits = model->Logits(batch);
        EXPECT_EQ(logits.size(0), batch_size);
        EXPECT_EQ(logits.size(-1), config.Outputs());
        EXPECT_TRUE(torch::isfinite(logits).all().item<bool>())
            << TextOf(config) << " " << source;
      }
      Batch batch = RaggedBatch(config);
      batch.lengths = Lengths({9, 0, 5});
      const torch::Tensor logits = model->Logits(batch);
      const torch::Tensor valid = logits.dim() == 2 ? logits : logits[0];
      EXPECT_TRUE(torch::isfinite(valid).all().item<bool>()) << TextOf(config);
    }
  }
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Model, WeightFilesGoRound) {
  torch::NoGradGuard no_grad;
  TemporaryFolder folder;
  for (const Arch arch : kArchs) {
    ModelConfig config = SmallConfig(arch);
    SetKey(config, "feature_map", FeatureMap::kFavor);
    const auto first = EvalModel(config, 1), second = EvalModel(config, 2);
    first->RedrawFeatures(7);
    const Batch batch = RaggedBatch(config);
    EXPECT_FALSE(torch::equal(first->Logits(batch), second->Logits(batch)));
    SaveWeights(*first, folder / "a.safetensors");
    LoadWeights(*second, folder / "a.safetensors");
    EXPECT_TRUE(torch::equal(first->Logits(batch), second->Logits(batch)));
    SaveWeights(*second, folder / "b.safetensors");
    EXPECT_EQ(Contents(folder / "a.safetensors"),
              Contents(folder / "b.safetensors"));
    // Another architecture's file does not fit.
    const auto other = EvalModel(
        SmallConfig(arch == Arch::kEncoder ? Arch::kSeq2seq : Arch::kEncoder));
    EXPECT_THROW(LoadWeights(*other, folder / "a.safetensors"), FormatError);
  }
}

TEST(Model, ImagesGetMixtures) {
  torch::NoGradGuard no_grad;
  const auto image = EvalModel(OfImages(SmallConfig(Arch::kDecoder)));
  Batch batch;
  batch.tokens = torch::randint(256, {2, 11}, torch::kInt64);
  EXPECT_EQ(image->Logits(batch).sizes().vec(),
            (std::vector<int64_t>{2, 11, 6}));
}

TEST(Model, RefusesWrongBatches) {
  const auto model = EvalModel(SmallConfig(Arch::kSeq2seq));
  const Batch good = RaggedBatch(SmallConfig(Arch::kSeq2seq));
  const auto refused = [&](const std::function<void(Batch&)>& change,
                           ErrorCode code, const std::string& where) {
    Batch batch = good;
    change(batch);
    const Error error = ErrorOf([&] { model->Logits(batch); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.where(), where) << error.what();
  };
  refused([](Batch& b) { b.tokens = b.tokens[0]; }, ErrorCode::kShape,
          "Seq2Seq: tokens");
  refused([](Batch& b) { b.tokens = b.tokens.to(torch::kInt32); },
          ErrorCode::kDType, "Seq2Seq: tokens");
  refused([](Batch& b) { b.target_in = b.target_in + kVocab; },
          ErrorCode::kArgument, "Seq2Seq: target: tokens");
  refused(
      [](Batch& b) {
        b.lengths = Lengths({9, 1});
      },
      ErrorCode::kShape, "Seq2Seq: lengths");
  refused(
      [](Batch& b) {
        b.lengths = Lengths({9, 10, 1});
      },
      ErrorCode::kArgument, "Seq2Seq: lengths");
  refused(
      [](Batch& b) {
        b.target_lengths = Lengths({-1, 1, 1});
      },
      ErrorCode::kArgument, "Seq2Seq: target: lengths");
  refused([](Batch& b) { b.lengths = b.lengths.to(torch::kInt32); },
          ErrorCode::kDType, "Seq2Seq: lengths");
  refused([](Batch& b) { b.target_in = b.target_in.slice(0, 1); },
          ErrorCode::kShape, "Seq2Seq: target: tokens");
  EXPECT_THROW(Seq2Seq(SmallConfig(Arch::kDecoder)), ArgumentError);
  EXPECT_THROW(Classifier(SmallConfig(Arch::kSeq2seq)), ArgumentError);
  EXPECT_THROW(LanguageModel(SmallConfig(Arch::kSeq2seq)), ArgumentError);
}

}  // namespace models_test
}  // namespace tarn::nn
