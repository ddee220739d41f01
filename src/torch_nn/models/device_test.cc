// Modules compute where their parameters are: on a device that refuses to mix
// its tensors with the CPU's, they give the CPU's numbers.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/feature_map.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/model.h"
#include "torch_nn/models/other_device.h"
#include "torch_nn/models/recurrent.h"
#include "torch_nn/models/seq2seq.h"
#include "torch_nn/state/check.h"
#include "torch_nn/state/lengths.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace device_test {

using other_device::kDevice;

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
  config.max_positions = 40;
  SetKey(config, "max_sequence_length", 16);
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
  decoder("learned", [](ModelConfig& c) { c.positions = Positions::kLearned; });
  decoder("rotary", [](ModelConfig& c) { c.positions = Positions::kRotary; });
  decoder("rotary_after", [](ModelConfig& c) {
    c.positions = Positions::kRotary;
    c.rotary_place = RotaryPlace::kAfter;
  });
  decoder("favor",
          [](ModelConfig& c) { SetKey(c, "feature_map", FeatureMap::kFavor); });
  decoder("swiglu_rms", [](ModelConfig& c) {
    c.norm_kind = NormKind::kRms;
    c.feed_forward = FeedForwardOf("swiglu");
  });
  for (const AttentionKind kind :
       {MixerKind("full"), MixerKind("local"), MixerKind("exact-topk"),
        MixerKind("aft-full"), MixerKind("aft-simple")}) {
    decoder(Name(kind), [&](ModelConfig& c) {
      c.attention = kind;
      SetKey(c, "local_context", kind == MixerKind("local") ? 4 : 0);
    });
  }
  for (const char* name :
       {"retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn",
        "kda", "norm-linear", "rwkv6", "rwkv7", "gated-full", "mamba1",
        "short-conv", "rg-lru", "mlstm"}) {
    decoder(name,
            [&](ModelConfig& c) { SetConfigField(c, "attention", name); });
  }
  decoder("parallel", [](ModelConfig& c) {
    SetConfigField(c, "attention", "mamba2+full");
  });
  decoder("channel_mix", [](ModelConfig& c) {
    c.feed_forward = FeedForwardOf("channel-mix");
    SetConfigField(c, "layers", "rwkv7,full");
  });
  add("classifier", Arch::kEncoder, Task::kClassify, nothing);
  add("frames", Arch::kEncoder, Task::kCtc, nothing);
  add("seq2seq", Arch::kSeq2seq, Task::kSeq2seq, nothing);
  add("seq2seq_full", Arch::kSeq2seq, Task::kSeq2seq,
      [](ModelConfig& c) { c.attention = MixerKind("full"); });
  // lstm and cnn are left out: torch's cells and convolutions have a form for
  // each device, and this one has none.
  add("rnn", Arch::kRnn, Task::kLm, nothing);
  return cases;
}

// The same weights on both devices.
struct Both {
  explicit Both(const ModelConfig& config) {
    torch::manual_seed(4);
    here = MakeModel(config);
    torch::manual_seed(4);
    there = MakeModel(config);
    other_device::Move(*there);
  }
  std::shared_ptr<ModelImpl> here, there;
};

// Kernels run here, composed forms there: they sum in another order.
void ExpectNear(const torch::Tensor& there, const torch::Tensor& here) {
  ASSERT_EQ(there.device(), kDevice);
  EXPECT_EQ(there.scalar_type(), here.scalar_type());
  const torch::Tensor back = there.detach().to(torch::kCPU);
  EXPECT_TRUE(torch::allclose(back, here.detach(), 1e-4, 1e-5))
      << (back - here.detach()).abs().max().item<double>();
}

torch::Tensor Tokens() {
  return torch::arange(kBatch * kSeqLen).reshape({kBatch, kSeqLen}) % kVocab;
}

// A batch of what the case's task reads; its lengths stay on the CPU.
Batch RowsOf(const ModelConfig& config) {
  Batch batch;
  if (config.input_dim > 0 && config.task == Task::kCtc) {
    batch.frames = torch::arange(kBatch * kSeqLen * config.input_dim)
                       .reshape({kBatch, kSeqLen, config.input_dim})
                       .to(torch::kFloat32)
                       .sin();
  } else {
    batch.tokens = Tokens();
  }
  batch.lengths = torch::tensor({kSeqLen, kSeqLen - 3});
  if (config.arch == Arch::kSeq2seq) {
    batch.target_in = Tokens().slice(1, 0, 4);
    batch.target_lengths = torch::tensor({int64_t{4}, int64_t{2}});
  }
  return batch;
}

class DeviceTest : public testing::TestWithParam<Case> {};

// Logits past a length are unspecified, so they are set to 0.
torch::Tensor Counted(const torch::Tensor& logits, const Batch& batch) {
  if (logits.dim() < 3) return logits;
  const torch::Tensor lengths =
      batch.target_in.defined() ? batch.target_lengths : batch.lengths;
  const torch::Tensor kept = PrefixMask("test", lengths, logits).unsqueeze(-1);
  return logits.masked_fill(kept.logical_not(), 0.0);
}

TEST_P(DeviceTest, LogitsAndGradientsLieWithTheWeights) {
  const Both models(GetParam().config);
  ASSERT_EQ(models.there->device(), kDevice);
  const Batch batch = RowsOf(models.here->config());
  models.here->eval();  // no dropout: each device has its own generator
  models.there->eval();
  const torch::Tensor here = Counted(models.here->Logits(batch), batch);
  const torch::Tensor there =
      Counted(models.there->Logits(ToDevice(batch, kDevice)), batch);
  ExpectNear(there, here);
  here.square().mean().backward();
  there.square().mean().backward();
  const auto parameters = models.here->named_parameters();
  int64_t with_gradient = 0;
  for (const auto& item : models.there->named_parameters()) {
    const torch::Tensor want = parameters[item.key()].grad();
    ASSERT_EQ(item.value().grad().defined(), want.defined()) << item.key();
    if (!want.defined()) continue;
    SCOPED_TRACE(item.key());
    ExpectNear(item.value().grad(), want);
    ++with_gradient;
  }
  EXPECT_GT(with_gradient, 2);
}

TEST_P(DeviceTest, StatesLieWithTheWeights) {
  torch::NoGradGuard no_grad;
  const Both models(GetParam().config);
  const torch::Tensor lengths = torch::tensor({kSeqLen, kSeqLen - 3});
  const auto check = [&](const StackState& state) {
    for (const MixerState& layer : state.layers) {
      EXPECT_TRUE(layer.lengths.is_cpu());
      for (const torch::Tensor& tensor : layer.tensors()) {
        if (!tensor.defined()) continue;
        EXPECT_EQ(tensor.device(), kDevice);
      }
    }
  };
  const auto go_on = [&](auto& stack, const StackState& start,
                         torch::Device device) {
    StackState state =
        std::get<1>(stack.Prefill(Tokens().to(device), start, lengths));
    if (device == kDevice) check(state);
    state = state.IndexSelect(torch::tensor({1, 0}, torch::kInt64))
                .Reset(torch::tensor({true, false}));
    auto [after, last] =
        stack.Prefill(Tokens().slice(1, 0, 1).to(device), state);
    if (device == kDevice) check(last);
    return after;
  };
  const auto compare = [&](const auto& start) {
    models.here->eval();
    models.there->eval();
    ExpectNear(start(*models.there, kDevice), start(*models.here, torch::kCPU));
  };
  if (dynamic_cast<LanguageModelImpl*>(models.here.get()) != nullptr) {
    compare([&](ModelImpl& model, torch::Device device) {
      auto& lm = dynamic_cast<LanguageModelImpl&>(model);
      return go_on(lm, lm.InitialState(kBatch), device);
    });
  } else if (dynamic_cast<Seq2SeqImpl*>(models.here.get()) != nullptr) {
    compare([&](ModelImpl& model, torch::Device device) {
      auto& pairs = dynamic_cast<Seq2SeqImpl&>(model);
      return go_on(pairs, pairs.Encode(Tokens().to(device), lengths), device);
    });
  } else {
    EXPECT_THROW(models.there->EmptyState(), ArgumentError);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceTest, testing::ValuesIn(Cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

// The check can fail: the index is on the CPU, the tensors elsewhere.
TEST(OtherDeviceTest, RefusesTensorsOfAnotherDevice) {
  const torch::Tensor there = torch::ones({3, 2}).to(kDevice);
  EXPECT_EQ(there.sum().item<float>(), 6);
  EXPECT_ANY_THROW(there + torch::ones({3, 2}));
  EXPECT_ANY_THROW(torch::matmul(there, torch::ones({2, 2})));
  EXPECT_ANY_THROW(there.index_select(0, torch::zeros({1}, torch::kInt64)));
  EXPECT_ANY_THROW(there.index({torch::zeros({1}, torch::kInt64)}));
  EXPECT_ANY_THROW(torch::cat({there, torch::ones({3, 2})}));
}

}  // namespace device_test
}  // namespace tarn::nn
