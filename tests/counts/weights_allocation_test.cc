// Packing a model takes the memory of the packed weights and one block of rows:
// no weight is in memory twice, in any format, from one file or from shards.
#include <gtest/gtest.h>

#include <vector>

#include "allocation_count.h"
#include "reference/test_model.h"
#include "runtime/model/files.h"
#include "runtime/weights/weights.h"

namespace tarn::testing {
namespace {

// The file's tensors by turns in two shards, without the file.
void Split(const TemporaryFolder& folder) {
  const auto whole = OpenWeightSource(folder.path()).Take();
  std::vector<TensorToWrite> shards[2];
  std::vector<std::vector<float>> data;
  std::string map;
  for (size_t i = 0; i < whole->tensors().size(); ++i) {
    const WeightTensor& tensor = whole->tensors()[i];
    std::vector<float>& values =
        data.emplace_back(static_cast<size_t>(tensor.elements()));
    whole->ReadRows(tensor, {0, tensor.rows()}, values.data());
    shards[i % 2].push_back(
        {tensor.name, DType::kF32, tensor.shape, values.data()});
    map += StrCat(i == 0 ? "" : ",", "\"", tensor.name, "\":\"s", i % 2, "\"");
  }
  WriteSafetensors(folder / "s0", shards[0], {});
  WriteSafetensors(folder / "s1", shards[1], {});
  WriteFileAtomically(folder / "model.safetensors.index.json",
                      "{\"weight_map\":{" + map + "}}");
  std::filesystem::remove(folder / "model.safetensors");
}

ModelConfig Config(const char* attention, FeedForwardKind feed_forward,
                   Arch arch) {
  ModelConfig config;
  config.vocab_size = 500;
  config.d_model = 256;
  config.n_layers = 3;
  config.n_heads = 4;
  config.d_ff = 1000;
  config.attention = MixerKind(attention);
  config.feed_forward = feed_forward;
  config.arch = arch;
  if (arch == Arch::kEncoder) config.n_classes = 5;
  FinishConfig(config);
  return config;
}

TEST(WeightsAllocation, NothingIsInMemoryTwice) {
  for (const ModelConfig& config :
       {Config("linear", FeedForwardOf("mlp"), Arch::kDecoder),
        Config("full", FeedForwardOf("swiglu"), Arch::kDecoder),
        Config("linear", FeedForwardOf("mlp"), Arch::kSeq2seq),
        Config("full", FeedForwardOf("mlp"), Arch::kEncoder)}) {
    const TemporaryFolder folder;
    WriteModel(folder.path(), config, RandomTensors(config, 1));
    for (const bool shards : {false, true}) {
      if (shards) Split(folder);
      for (const WeightFormat* format : WeightFormats()) {
        const auto source = OpenWeightSource(folder.path()).Take();
        ASSERT_FALSE(CheckWeights(*source, config));
        const int64_t before = AllocatedBytes();
        SerialExecutor serial;
        const Weights weights = PackWeights(
            *source, config, WeightPlan(config, format, false), serial);
        const int64_t taken = AllocatedBytes() - before;
        // Blocks of the arena grow by a quarter, in whole huge pages; the last
        // may be unused. The rest is a panel's rows of the widest matrix, and
        // vectors. A second copy of the weights would take 11 MB or more.
        EXPECT_LE(taken, weights.bytes + weights.bytes / 4 + (3 << 20))
            << format->name;
        // What is held was known before anything was read, but for panels that
        // matrices of one product share.
        const double most = MostWeightBytes(config);
        EXPECT_LE(static_cast<double>(weights.bytes), most) << format->name;
        if (format == &kF32Weights) {
          EXPECT_GE(static_cast<double>(weights.bytes), 0.95 * most);
        }
        EXPECT_GT(weights.bytes, static_cast<int64_t>(
                                     BytesPerWeight(*format) *
                                     static_cast<double>(weights.parameters)));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::testing
