// Modules compute where their parameters lie. Seen on the meta device, which
// has shapes and no numbers: a tensor left on the CPU raises when it meets
// another, and so does every number that the host waits for.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "torch_nn/models/language_model.h"
#include "torch_nn/models/model.h"
#include "torch_nn/models/recurrent.h"
#include "torch_nn/models/seq2seq.h"

namespace tarn::nn {
namespace {

constexpr int64_t kBatch = 2, kSeqLen = 7, kVocab = 13;

ModelConfig SmallConfig(Arch arch, Task task) {
  ModelConfig config;
  config.arch = arch;
  config.task = task;
  config.vocab_size = kVocab;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_ff = 20;
  config.max_positions = 16;
  config.max_sequence_length = 16;
  config.positions = Positions::kSinusoidal;
  if (task == Task::kClassify || task == Task::kCtc) config.n_classes = 3;
  if (task == Task::kCtc) config.input_dim = 5;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 2;
  return config;
}

struct Case {
  std::string name;
  ModelConfig config;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, Arch arch, Task task,
                       const std::function<void(ModelConfig&)>& change) {
    cases.push_back({name, SmallConfig(arch, task)});
    change(cases.back().config);
  };
  const auto nothing = [](ModelConfig&) {};
  const auto decoder = [&](const std::string& name, const auto& change) {
    add(name, Arch::kDecoder, Task::kLm, change);
  };
  decoder("sinusoidal", nothing);
  decoder("concatenated", [](ModelConfig& c) {
    c.position_combine = PositionCombine::kConcat;
  });
  decoder("learned",
          [](ModelConfig& c) { c.positions = Positions::kLearned; });
  decoder("rotary", [](ModelConfig& c) { c.positions = Positions::kRotary; });
  decoder("rotary_after", [](ModelConfig& c) {
    c.positions = Positions::kRotary;
    c.rotary_place = RotaryPlace::kAfter;
  });
  decoder("favor", [](ModelConfig& c) { c.feature_map = FeatureMap::kFavor; });
  decoder("swiglu_rms", [](ModelConfig& c) {
    c.norm_kind = NormKind::kRms;
    c.feed_forward = FeedForwardKind::kSwiglu;
  });
  for (const AttentionKind kind :
       {AttentionKind::kFull, AttentionKind::kLocal, AttentionKind::kExactTopk,
        AttentionKind::kAftFull, AttentionKind::kAftSimple}) {
    decoder(Name(kind), [&](ModelConfig& c) { c.attention = kind; });
  }
  add("classifier", Arch::kEncoder, Task::kClassify, nothing);
  add("frames", Arch::kEncoder, Task::kCtc, nothing);
  add("seq2seq", Arch::kSeq2seq, Task::kSeq2seq, nothing);
  add("seq2seq_full", Arch::kSeq2seq, Task::kSeq2seq, [](ModelConfig& c) {
    c.attention = AttentionKind::kFull;
  });
  add("rnn", Arch::kRnn, Task::kLm, nothing);
  add("lstm", Arch::kLstm, Task::kLm, nothing);
  add("cnn", Arch::kCnn, Task::kLm, nothing);
  return cases;
}

// The tensor itself, whoever holds it: Module::to moves between devices whose
// tensors have numbers, and meta is none of them.
void MoveToMeta(const torch::Tensor& tensor) {
  const torch::Tensor there = tensor.detach().to(torch::kMeta);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->_change_backend_component_keys(torch::kMeta);
  impl->set_storage_keep_dtype(there.storage());
}

std::shared_ptr<ModelImpl> OnMeta(const ModelConfig& config) {
  auto model = MakeModel(config);
  for (const torch::Tensor& parameter : model->parameters()) {
    MoveToMeta(parameter);
  }
  for (const torch::Tensor& buffer : model->buffers()) MoveToMeta(buffer);
  return model;
}

torch::Tensor Tokens() {
  return torch::ones({kBatch, kSeqLen}, torch::kInt64).to(torch::kMeta);
}

// Of what the case's task reads, with lengths, which stay on the CPU.
Batch RowsOf(const ModelConfig& config) {
  Batch batch;
  if (config.input_dim > 0 && config.task == Task::kCtc) {
    batch.frames = torch::ones({kBatch, kSeqLen, config.input_dim});
  } else {
    batch.tokens = torch::ones({kBatch, kSeqLen}, torch::kInt64);
  }
  batch.lengths = torch::tensor({kSeqLen, kSeqLen - 3});
  if (config.arch == Arch::kSeq2seq) {
    batch.target_in = torch::ones({kBatch, 4}, torch::kInt64);
    batch.target_lengths = torch::tensor({int64_t{4}, int64_t{2}});
  }
  return ToDevice(batch, torch::kMeta);
}

class DeviceTest : public testing::TestWithParam<Case> {};

TEST_P(DeviceTest, LogitsAndGradientsLieWithTheWeights) {
  const auto model = OnMeta(GetParam().config);
  ASSERT_TRUE(model->device().is_meta());
  const torch::Tensor logits = model->Logits(RowsOf(model->config()));
  EXPECT_TRUE(logits.is_meta());
  EXPECT_EQ(logits.scalar_type(), torch::kFloat32);
  logits.sum().backward();
  int64_t with_gradient = 0;
  for (const torch::Tensor& parameter : model->parameters()) {
    if (!parameter.grad().defined()) continue;
    EXPECT_TRUE(parameter.grad().is_meta());
    ++with_gradient;
  }
  EXPECT_GT(with_gradient, 2);
}

TEST_P(DeviceTest, StatesLieWithTheWeights) {
  torch::NoGradGuard no_grad;
  const auto model = OnMeta(GetParam().config);
  model->eval();
  const torch::Tensor lengths = torch::tensor({kSeqLen, kSeqLen - 3});
  const auto check = [&](const StackState& state) {
    for (const MixerState& layer : state.layers) {
      EXPECT_TRUE(layer.lengths.is_cpu());
      for (const torch::Tensor& tensor : layer.tensors()) {
        if (tensor.defined()) EXPECT_TRUE(tensor.is_meta());
      }
    }
  };
  const auto go_on = [&](auto& stack, const StackState& start) {
    auto [logits, state] = stack.Prefill(Tokens(), start, lengths);
    EXPECT_TRUE(logits.is_meta());
    check(state);
    state = state.IndexSelect(torch::tensor({1, 0}, torch::kInt64))
                .Reset(torch::tensor({true, false}));
    auto [after, last] = stack.Prefill(Tokens().slice(1, 0, 1), state);
    EXPECT_TRUE(after.is_meta());
    check(last);
  };
  if (auto* lm = dynamic_cast<LanguageModelImpl*>(model.get())) {
    go_on(*lm, lm->InitialState(kBatch));
  } else if (auto* pairs = dynamic_cast<Seq2SeqImpl*>(model.get())) {
    go_on(*pairs, pairs->Encode(Tokens(), lengths));
  } else {
    GTEST_SKIP() << "no state";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceTest, testing::ValuesIn(Cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

// The check can fail: an index on the CPU, tensors elsewhere.
TEST(MetaDeviceTest, RefusesTensorsOfAnotherDevice) {
  const torch::Tensor there = torch::ones({3, 2}).to(torch::kMeta);
  EXPECT_ANY_THROW(there + torch::ones({3, 2}));
  EXPECT_ANY_THROW(there.index_select(0, torch::zeros({1}, torch::kInt64)));
  EXPECT_ANY_THROW(there.sum().item<float>());
}

}  // namespace
}  // namespace tarn::nn
