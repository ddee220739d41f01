// Every architecture under the base of model.h: names and values against the
// oracle, padding that has no influence, the recurrent form, weight files.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "core/test_util.h"
#include "torch_nn/models/classifier.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/model.h"
#include "torch_nn/models/plain_earlier.h"
#include "torch_nn/models/plain_model.h"
#include "torch_nn/models/recurrent.h"
#include "torch_nn/models/seq2seq.h"
#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace models_test {

using plain::LargestError;
using torch::indexing::Slice;
constexpr int64_t kVocab = 13;

ModelConfig SmallConfig(Arch arch) {
  ModelConfig config;
  config.arch = arch;
  config.vocab_size = kVocab;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_key = 4;
  config.d_value = 3;
  config.d_ff = 20;
  config.max_positions = 6;
  config.dropout = 0.1;  // must not act in eval mode
  if (arch == Arch::kEncoder) config.n_classes = 3;
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = 3;
  return config;
}

// Kinds of attention beside linear and full whose weights the oracle knows,
// and every further feature map.
std::vector<ModelConfig> KindVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  const auto add = [&](const std::function<void(ModelConfig&)>& change) {
    configs.push_back(SmallConfig(arch));
    configs.back().d_value = 4;  // aft wants d_key
    change(configs.back());
  };
  using enum AttentionKind;
  for (const int64_t context : {1, 3, 4}) {
    add([&](ModelConfig& c) {
      c.attention = kLocal, c.local_context = context;
    });
  }
  for (const int64_t topk : {2, 32}) {
    add([&](ModelConfig& c) { c.attention = kExactTopk, c.topk = topk; });
  }
  add([](ModelConfig& c) {
    c.attention = kExactTopk, c.topk = 3, c.positions = Positions::kRotary;
  });
  for (const int64_t limit : {3, 100}) {
    add([&](ModelConfig& c) {
      c.attention = kConditionalFull, c.length_limit = limit;
      c.feature_map = FeatureMap::kFavorPositive;
    });
  }
  add([](ModelConfig& c) {
    c.attention = kAftFull, c.max_sequence_length = 9;
    c.aft_parameterization = 5;
  });
  add([](ModelConfig& c) { c.attention = kAftSimple; });
  for (const FeatureMap map :
       {FeatureMap::kRelu2, FeatureMap::kPoly2, FeatureMap::kFavor,
        FeatureMap::kFavorPositive, FeatureMap::kRff, FeatureMap::kSmoothedRff,
        FeatureMap::kGrf}) {
    add([&](ModelConfig& c) {
      c.feature_map = map;
      c.n_dims = UsesOmega(map) ? 9 : 0;
      // Rows of relu's features may be all 0; the oracle divides by them.
      if (map == FeatureMap::kRelu2 || map == FeatureMap::kGrf) {
        c.denominator = Denominator::kCompat, c.eps = 0.25;
      }
      if (map == FeatureMap::kPoly2) c.positions = Positions::kRotary;
    });
  }
  for (const FeatureMap map :
       {FeatureMap::kFavor, FeatureMap::kFavorPositive}) {
    add([&](ModelConfig& c) { c.feature_map = map, c.stabilise = true; });
  }
  add([](ModelConfig& c) { c.denominator = Denominator::kSigned; });
  return configs;
}

// Stacks of different mixers, with options of their own; kinds of norms and
// feed-forward parts.
std::vector<ModelConfig> HybridVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  for (const char* layers :
       {"linear,full",
        "full,linear,linear:feature_map=relu2:denominator=compat",
        "linear,aft-simple", "aft-full,exact-topk:topk=3",
        "local:local_context=4,linear:feature_map=favor-positive",
        "linear:feature_map=rff,linear:stabilise=true:feature_map=favor,full",
        "conditional-full:length_limit=3,linear:feature_map=poly2"}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      ModelConfig config = SmallConfig(arch);
      config.n_layers = 3;
      config.d_value = 4;  // aft wants d_key
      config.eps = 0.25;
      config.norm = norm;
      config.layers = LayersFromText(layers);
      configs.push_back(config);
      config.positions = Positions::kRotary;
      if (!Contains(layers, "aft")) configs.push_back(config);
    }
  }
  // Other norms and feed-forward parts, by themselves and together.
  for (const int choice : {1, 2, 3}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      ModelConfig config = SmallConfig(arch);
      config.norm = norm;
      config.norm_eps = 0.01;  // large, so that its place would show
      if (choice & 1) config.norm_kind = NormKind::kRms;
      if (choice & 2) config.feed_forward = FeedForwardKind::kSwiglu;
      configs.push_back(config);
      config.layers = LayersFromText("linear,full");
      configs.push_back(config);
    }
  }
  return configs;
}

// Kinds that decide by hashes: whole sequences only.
std::vector<ModelConfig> HashVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  using enum AttentionKind;
  for (const AttentionKind kind :
       {kClustered, kImprovedClustered, kCausalImprovedClustered, kReformer}) {
    ModelConfig config = SmallConfig(arch);
    config.attention = kind;
    config.clusters = 3;
    config.iterations = 4;
    config.bits = 7;
    config.topk = 2;
    config.hash_chunk = 2;
    config.rounds = 2;
    try {
      FinishConfig(config);
    } catch (const ArgumentError&) {
      continue;  // of the other causality
    }
    configs.push_back(config);
  }
  return configs;
}

// The same model with frames for tokens and classes of every frame.
ModelConfig OfFrames(ModelConfig config) {
  config.task = Task::kCtc;
  config.n_classes = 5;
  config.input_dim = 7;
  return config;
}

// The same model with a head of two logistics a byte.
ModelConfig OfImages(ModelConfig config) {
  config.task = Task::kImage;
  config.vocab_size = 256;
  config.image_height = config.image_width = 2;
  config.image_channels = 3;
  config.n_mixtures = 2;
  return config;
}

bool HasRecurrentForm(const ModelConfig& config) {
  for (const AttentionKind kind : MixersOf(config)) {
    if (!Spec(kind).can.recurrent) return false;
  }
  return true;
}

// Both tasks of an earlier model, and what else it may choose.
std::vector<ModelConfig> EarlierVariants(Arch arch) {
  std::vector<ModelConfig> configs;
  for (const Task task : {Task::kLm, Task::kClassify}) {
    ModelConfig config = SmallConfig(arch);
    config.task = task;
    if (task == Task::kClassify) config.n_classes = 4;
    configs.push_back(config);
    config.kernel_size = 4;
    config.activation = Activation::kRelu;
    config.n_layers = 1;
    config.tied_head = task == Task::kLm;
    config.bidirectional = arch == Arch::kLstm && task == Task::kClassify;
    configs.push_back(config);
    config.n_layers = 3;
    configs.push_back(config);
  }
  if (arch == Arch::kLstm) {
    configs.push_back(OfFrames(SmallConfig(arch)));
    configs.push_back(configs.back());
    configs.back().bidirectional = true;
  }
  for (ModelConfig& each : configs) FinishConfig(each);
  return configs;
}

// Kinds, places of norms and positions of an attention model.
std::vector<ModelConfig> Variants(Arch arch) {
  if (arch > Arch::kSeq2seq) return EarlierVariants(arch);
  std::vector<ModelConfig> configs;
  for (const AttentionKind kind :
       {AttentionKind::kLinear, AttentionKind::kFull}) {
    for (const Norm norm : {Norm::kPre, Norm::kPost}) {
      for (const Positions positions :
           {Positions::kNone, Positions::kSinusoidal, Positions::kLearned,
            Positions::kRotary}) {
        ModelConfig config = SmallConfig(arch);
        config.attention = kind;
        config.norm = norm;
        config.positions = positions;
        configs.push_back(config);
      }
    }
  }
  ModelConfig config = SmallConfig(arch);
  config.positions = Positions::kRotary;
  config.rotary_place = RotaryPlace::kAfter;
  configs.push_back(config);
  config.denominator = Denominator::kNone;
  configs.push_back(config);
  config = SmallConfig(arch);
  config.positions = Positions::kSinusoidal;
  config.position_combine = PositionCombine::kConcat;
  config.final_norm = false;
  configs.push_back(config);
  config = SmallConfig(arch);
  config.denominator = Denominator::kCompat;
  config.activation = Activation::kRelu;
  config.tied_head = arch != Arch::kEncoder;
  configs.push_back(config);
  if (arch == Arch::kSeq2seq) {  // one kind within, another across
    config.cross_attention = CrossAttention::kFull;
    configs.push_back(config);
    config.attention = AttentionKind::kFull;
    config.cross_attention = CrossAttention::kLinear;
    configs.push_back(config);
  }
  if (arch == Arch::kEncoder) {
    const size_t tokens = configs.size();
    for (size_t i = 0; i < tokens; ++i) configs.push_back(OfFrames(configs[i]));
  }
  if (arch == Arch::kDecoder) configs.push_back(OfImages(SmallConfig(arch)));
  const std::vector<ModelConfig> kinds = KindVariants(arch);
  configs.insert(configs.end(), kinds.begin(), kinds.end());
  const std::vector<ModelConfig> hybrids = HybridVariants(arch);
  configs.insert(configs.end(), hybrids.begin(), hybrids.end());
  if (arch == Arch::kEncoder) configs.push_back(OfFrames(hybrids.front()));
  if (arch == Arch::kDecoder) configs.push_back(OfImages(hybrids.front()));
  for (ModelConfig& each : configs) FinishConfig(each);
  return configs;
}

std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.arch), " ", LayersText(c), " ", Name(c.cross_attention),
                " ", Name(c.positions), " ", Name(c.rotary_place), " ",
                Name(c.norm), " ", Name(c.norm_kind), " ", Name(c.feed_forward),
                " ", Name(c.denominator), " ", Name(c.feature_map), " ",
                Name(c.task), " ", c.n_layers);
}

std::shared_ptr<ModelImpl> EvalModel(const ModelConfig& config,
                                     uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto model = MakeModel(config);
  model->eval();
  return model;
}

torch::Tensor Tokens(int64_t batch, int64_t seq_len) {
  return torch::randint(kVocab, {batch, seq_len}, torch::kInt64);
}

torch::Tensor Lengths(std::initializer_list<int64_t> lengths) {
  return torch::tensor(std::vector<int64_t>(lengths), torch::kInt64);
}

// Three sequences of 9, 1 and 5 tokens or frames, targets of 4, 7 and 1.
Batch RaggedBatch(const ModelConfig& config) {
  const Arch arch = config.arch;
  Batch batch;
  batch.lengths = Lengths({9, 1, 5});
  if (config.ReadsFrames()) {
    batch.frames = torch::randn({3, 9, config.input_dim});
    return batch;
  }
  batch.tokens = Tokens(3, 9);
  if (arch == Arch::kSeq2seq) {
    batch.target_in = Tokens(3, 7);
    batch.target_lengths = Lengths({4, 7, 1});
  }
  return batch;
}

// Row b alone, cut to its lengths.
Batch RowOf(const Batch& batch, int64_t b) {
  const auto cut = [&](const torch::Tensor& tokens,
                       const torch::Tensor& lengths) {
    return tokens.narrow(0, b, 1).narrow(1, 0, lengths[b].item<int64_t>());
  };
  Batch row;
  if (batch.frames.defined()) {
    row.frames = cut(batch.frames, batch.lengths);
    return row;
  }
  row.tokens = cut(batch.tokens, batch.lengths);
  if (batch.target_in.defined()) {
    row.target_in = cut(batch.target_in, batch.target_lengths);
  }
  return row;
}

// The logits that count in row b.
torch::Tensor Valid(const torch::Tensor& logits, const Batch& batch,
                    int64_t b) {
  if (logits.dim() == 2) return logits[b];
  const torch::Tensor& lengths =
      batch.target_in.defined() ? batch.target_lengths : batch.lengths;
  return logits[b].narrow(0, 0, lengths[b].item<int64_t>());
}

torch::Tensor PlainLogits(const ModelConfig& config,
                          const plain::Weights& weights, const Batch& row) {
  const torch::Tensor frames =
      row.frames.defined() ? row.frames.to(torch::kFloat64) : row.frames;
  switch (config.arch) {
    case Arch::kEncoder:
      if (config.ReadsFrames()) {
        return plain::FrameLogits(config, weights, frames);
      }
      return plain::ClassLogits(config, weights, row.tokens);
    case Arch::kSeq2seq:
      return plain::TargetLogits(config, weights, row.tokens, row.target_in);
    case Arch::kDecoder:
      return plain::Logits(config, weights, row.tokens);
    default:
      return plain::EarlierLogits(config, weights,
                                  config.ReadsFrames() ? frames : row.tokens);
  }
}

const std::vector<Arch> kArchs = {Arch::kDecoder, Arch::kEncoder,
                                  Arch::kSeq2seq, Arch::kRnn,
                                  Arch::kLstm,    Arch::kCnn};

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

// Logits of tokens taken in piece by piece equal those of all at once,
// an empty piece among them.
template <typename Prefill>
void ExpectPiecesEqualWhole(const torch::Tensor& tokens,
                            const torch::Tensor& whole, StackState state,
                            const Prefill& prefill, const std::string& what) {
  int64_t done = 0;
  for (const int64_t piece : {3, 0, 1, 1, 4}) {
    torch::Tensor logits;
    std::tie(logits, state) =
        prefill(tokens.slice(1, done, done + piece), state, torch::Tensor());
    EXPECT_LT(piece == 0
                  ? 0.0
                  : LargestError(logits, whole.slice(1, done, done + piece)),
              1e-5)
        << what << ", piece of " << piece << " after " << done;
    done += piece;
  }
  EXPECT_TRUE((state.lengths() == done).all().item<bool>());
}

TEST(Model, PiecesEqualWholeSequence) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kDecoder)) {
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<LanguageModelImpl&>(*base);
    if (!HasRecurrentForm(config)) {
      EXPECT_THROW(model.InitialState(2), ArgumentError);
      continue;
    }
    const torch::Tensor tokens = Tokens(2, 9);
    ExpectPiecesEqualWhole(
        tokens, model.forward(tokens), model.InitialState(2),
        [&](const auto& piece, const auto& state, const auto& lengths) {
          return model.Prefill(piece, state, lengths);
        },
        TextOf(config));
  }
  for (const ModelConfig& config : Variants(Arch::kSeq2seq)) {
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<Seq2SeqImpl&>(*base);
    if (!HasRecurrentForm(config)) continue;
    Batch batch = RaggedBatch(SmallConfig(Arch::kSeq2seq));
    batch.target_in = Tokens(3, 9);
    batch.target_lengths = torch::Tensor();
    ExpectPiecesEqualWhole(
        batch.target_in, model.Logits(batch),
        model.Encode(batch.tokens, batch.lengths),
        [&](const auto& piece, const auto& state, const auto& lengths) {
          return model.Prefill(piece, state, lengths);
        },
        TextOf(config));
  }
}

TEST(Model, RecurrentModelsStep) {
  torch::NoGradGuard no_grad;
  for (const Arch arch : {Arch::kRnn, Arch::kLstm}) {
    for (const ModelConfig& config : Variants(arch)) {
      const auto base = EvalModel(config);
      auto& model = dynamic_cast<RecurrentModelImpl&>(*base);
      if (config.task != Task::kLm) {
        EXPECT_THROW(model.InitialState(2), ArgumentError);
        continue;
      }
      Batch batch;
      batch.tokens = Tokens(2, 9);
      const torch::Tensor whole = model.Logits(batch);
      RecurrentState state = model.InitialState(2);
      int64_t done = 0;
      for (const int64_t piece : {4, 0, 1, 4}) {
        torch::Tensor logits;
        std::tie(logits, state) =
            model.Prefill(batch.tokens.slice(1, done, done + piece), state);
        if (piece == 0) continue;
        EXPECT_LT(LargestError(logits, whole.slice(1, done, done + piece)),
                  1e-5)
            << TextOf(config);
        done += piece;
      }
      EXPECT_THROW(model.Prefill(Tokens(3, 1), state), ArgumentError);
    }
  }
}

// Each sequence stands at its own length after a ragged piece.
TEST(Model, RaggedPiecesLeaveEachRowAtItsLength) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kDecoder)) {
    if (!HasRecurrentForm(config)) continue;
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<LanguageModelImpl&>(*base);
    const torch::Tensor tokens = Tokens(3, 8);
    const torch::Tensor first = Lengths({4, 0, 2}), second = Lengths({1, 3, 3});
    StackState state = model.InitialState(3);
    torch::Tensor logits;
    std::tie(logits, state) =
        model.Prefill(tokens.slice(1, 0, 4), state, first);
    std::tie(logits, state) =
        model.Prefill(tokens.slice(1, 4, 7), state, second);
    std::tie(logits, state) = model.Prefill(tokens.slice(1, 7), state);
    EXPECT_TRUE(torch::equal(state.lengths(), first + second + 1));
    for (int64_t b = 0; b < 3; ++b) {
      const torch::Tensor row = tokens[b];
      const torch::Tensor all = torch::cat(
          {row.slice(0, 0, first[b].item<int64_t>()),
           row.slice(0, 4, 4 + second[b].item<int64_t>()), row.slice(0, 7)});
      const torch::Tensor want = model.forward(all.unsqueeze(0))[0][-1];
      EXPECT_LT(LargestError(logits[b][0], want), 1e-5)
          << TextOf(config) << ", row " << b;
    }
  }
}

TEST(Model, StatesAreValues) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kSeq2seq)) {
    if (!HasRecurrentForm(config)) continue;
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<Seq2SeqImpl&>(*base);
    const Batch batch = RaggedBatch(SmallConfig(Arch::kSeq2seq));
    const StackState encoded = model.Encode(batch.tokens, batch.lengths);
    const auto [unused, state] =
        model.Prefill(batch.target_in.slice(1, 0, 3), encoded);
    const torch::Tensor next = Tokens(3, 1);
    const torch::Tensor want = model.Prefill(next, state).first;
    // A fork goes its own way and leaves the original as it was.
    StackState fork = state;
    fork = model.Prefill(Tokens(3, 2), fork).second;
    EXPECT_TRUE(torch::equal(model.Prefill(next, state).first, want));
    // Reordered, repeated rows.
    const torch::Tensor rows = Lengths({2, 0, 2, 1});
    EXPECT_TRUE(torch::allclose(
        model.Prefill(next.index({rows}), state.IndexSelect(rows)).first,
        want.index({rows}), 0, 1e-6));
    // Row 1 begins anew, the others stay.
    const torch::Tensor which = Lengths({0, 1, 0}).to(torch::kBool);
    const torch::Tensor reset = model.Prefill(next, state.Reset(which)).first;
    EXPECT_TRUE(torch::allclose(reset[0], want[0], 0, 1e-6));
    EXPECT_TRUE(torch::allclose(reset[1], model.Prefill(next, encoded).first[1],
                                0, 1e-6));
    if (config.attention != AttentionKind::kLocal) {  // may see itself alone
      EXPECT_FALSE(torch::allclose(reset[1], want[1], 0, 1e-4))
          << TextOf(config);
    }
    EXPECT_GT(state.bytes(), 0);
    EXPECT_THROW(state.IndexSelect(Lengths({3})), ArgumentError);
    EXPECT_THROW(state.Reset(which.slice(0, 1)), ShapeError);
    EXPECT_THROW(model.Prefill(Tokens(2, 1), state), ArgumentError);
  }
}

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

// Drawn in training only, by update, and a function of seed, layer and update.
TEST(Model, RandomFeaturesAreRedrawn) {
  ModelConfig config = SmallConfig(Arch::kSeq2seq);
  config.feature_map = FeatureMap::kFavor;
  config.redraw = 2;
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
  config.redraw = 0;
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

TEST(Model, AttentionFreeRefusesLongInput) {
  ModelConfig config = SmallConfig(Arch::kDecoder);
  config.attention = AttentionKind::kAftFull;
  config.d_value = 4;
  config.max_sequence_length = 5;
  const auto base = EvalModel(config);
  Batch batch;
  batch.tokens = Tokens(1, 6);
  const Error error = ErrorOf([&] { base->Logits(batch); });
  EXPECT_TRUE(Contains(error.wanted(), "max_sequence_length = 5"));
  auto& model = dynamic_cast<LanguageModelImpl&>(*base);
  const StackState state =
      model.Prefill(Tokens(1, 5), model.InitialState(1)).second;
  EXPECT_THROW(model.Prefill(Tokens(1, 1), state), ArgumentError);
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
    config.feature_map = FeatureMap::kFavor;
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
