// aft-simple in the runtime, without the rest of a model: the definition, the
// shares of a step, segments of sequences, and whole sequences without a state.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/test_util.h"
#include "mixers/aft/runtime.h"

namespace tarn::mixers {
namespace {

constexpr int64_t kHeads = 3, kWidth = 50, kChannels = kHeads * kWidth;

ModelConfig Config() {
  ModelConfig config;
  config.d_model = 8;
  config.n_layers = 2;
  config.n_heads = kHeads;
  config.d_key = config.d_value = kWidth;
  config.attention = MixerKind("aft-simple");
  FinishConfig(config);
  return config;
}

// The products belong to the stack: matrices of zeros will do.
class NoTensors final : public MixerTensors {
 public:
  std::vector<WeightMatrix> Matrices(const std::string&, int64_t, int64_t,
                                     int64_t) override {
    return {};
  }
  std::vector<float> Vector(const std::string&) override { return {}; }
  WeightMatrix Stack(const std::vector<std::string>&,
                     const std::vector<int64_t>& rows, int64_t inputs,
                     bool) override {
    int64_t outputs = 0;
    for (const int64_t count : rows) outputs += count;
    return WeightMatrix(outputs, inputs, kF32Weights);
  }
  int64_t layer() const override { return 0; }
  std::map<std::string, std::vector<float>>& passed() override {
    return passed_;
  }

 private:
  std::map<std::string, std::vector<float>> passed_;
};

// Rows of random queries, keys and values; results begin as NaN.
class TestBlock : public MixerBlock {
 public:
  TestBlock(Executor& executor, int64_t rows)
      : MixerBlock(executor, own_positions_, runs),
        in_data_(rows * kInStride),
        out_data_(rows * kOutStride, NAN) {
    Rng rng(1);
    for (float& x : in_data_) x = static_cast<float>(3 * rng.Normal());
    in = {in_data_.data(), kInStride};
    out = {out_data_.data(), kOutStride};
    own_positions_.assign(static_cast<size_t>(rows), 0);
  }
  // Moves the block to other rows of the same data.
  void Take(const TestBlock& all, int64_t begin, int64_t count) {
    in = all.in.From(begin);
    out = {out_data_.data() + begin * kOutStride, kOutStride};
    own_positions_.assign(static_cast<size_t>(count), 0);
  }
  void Prepare(const RuntimeMixer& mixer) {
    worker_floats_ = mixer.WorkerFloats(*this);
    scratch_ = AlignedBuffer<float>(worker_floats_ * workers());
    worker_scratch_ = scratch_.data();
  }
  const std::vector<float>& results() const { return out_data_; }
  bool SameResults(const TestBlock& other) const {
    return std::memcmp(out_data_.data(), other.out_data_.data(),
                       out_data_.size() * sizeof(float)) == 0;
  }

  std::vector<Segment> runs;  // what `segments` refers to

 private:
  static constexpr int64_t kInStride = 3 * kChannels + 5;
  static constexpr int64_t kOutStride = kChannels + 3;
  std::vector<int64_t> own_positions_;
  std::vector<float> in_data_, out_data_;
  AlignedBuffer<float> scratch_;
};

class AftRuntimeTest : public ::testing::Test {
 protected:
  AftRuntimeTest() {
    NoTensors tensors;
    mixer_ =
        FindRuntimeMixer("aft-simple")->make(LayerView(Config(), 0), tensors);
  }
  SequenceState State() const { return SequenceState(layout_); }

  // o = sigma(q) sum exp(k) v / sum exp(k) over rows [first, end) of the block.
  static double Definition(const TestBlock& block, int64_t row, int64_t c,
                           int64_t first, int64_t end) {
    double sum = 0, weights = 0;
    for (int64_t j = first; j < end; ++j) {
      const double weight = std::exp(double{block.in[j][kChannels + c]});
      sum += weight * block.in[j][2 * kChannels + c];
      weights += weight;
    }
    return sum / weights / (1 + std::exp(-double{block.in[row][c]}));
  }

  std::shared_ptr<const StateLayout> layout_ =
      std::make_shared<const StateLayout>(Config());
  std::unique_ptr<RuntimeMixer> mixer_;
  SerialExecutor serial_;
};

TEST_F(AftRuntimeTest, MixIsTheDefinitionForEverySegment) {
  constexpr int64_t kRows = 40;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    TestBlock block(pool, kRows);
    SequenceState first = State(), second = State(), none = State();
    block.runs = {{&first, 0, 29}, {&none, 29, 0}, {&second, 29, 11}};
    block.Prepare(*mixer_);
    mixer_->Mix(block, 1);
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t begin = row < 29 ? 0 : 29;
      for (int64_t c = 0; c < kChannels; ++c) {
        const double want = Definition(block, row, c, begin, row + 1);
        ASSERT_NEAR(want, block.out[row][c], 1e-6 * (1 + std::fabs(want)));
      }
    }
    EXPECT_TRUE(none.SameBits(State()));
    // The other layer's state is unchanged.
    EXPECT_EQ(-std::numeric_limits<float>::infinity(), first.Tensor(0, 0)[7]);
    EXPECT_TRUE(std::isfinite(first.Tensor(1, 0)[7]));
  }
}

TEST_F(AftRuntimeTest, StepsByAnySharesHaveTheBitsOfMix) {
  constexpr int64_t kRows = 12;
  TestBlock whole(serial_, kRows);
  SequenceState wanted = State();
  whole.runs = {{&wanted, 0, kRows}};
  whole.Prepare(*mixer_);
  mixer_->Mix(whole, 0);
  const int64_t shares = mixer_->units(/*phase=*/0);
  ASSERT_EQ(3, shares);  // 64, 64 and 22 channels
  for (int64_t cut = 0; cut <= shares; ++cut) {
    TestBlock steps(serial_, kRows);
    SequenceState state = State();
    steps.Prepare(*mixer_);
    for (int64_t row = 0; row < kRows; ++row) {
      steps.Take(whole, row, 1);
      steps.runs = {{&state, 0, 1}};
      if (cut < shares) mixer_->Step(steps, {.begin = cut, .end = shares});
      if (cut > 0) mixer_->Step(steps, {.begin = 0, .end = cut});
      for (int64_t share = 0; share < shares; ++share) {
        EXPECT_EQ(state.Tensor(0, 0) + 64 * share,
                  mixer_->Reads(steps, 0, /*phase=*/0, share));
      }
    }
    EXPECT_TRUE(steps.SameResults(whole)) << cut;
    EXPECT_TRUE(state.SameBits(wanted)) << cut;
  }
}

TEST_F(AftRuntimeTest, WholeSequencesSeeAllOfThemselves) {
  constexpr int64_t kRows = 33;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    TestBlock block(pool, kRows);
    block.runs = {{nullptr, 0, 20}, {nullptr, 20, 0}, {nullptr, 20, 13}};
    block.Prepare(*mixer_);
    mixer_->MixSequences(block);
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t begin = row < 20 ? 0 : 20, end = row < 20 ? 20 : kRows;
      for (int64_t c = 0; c < kChannels; ++c) {
        const double want = Definition(block, row, c, begin, end);
        ASSERT_NEAR(want, block.out[row][c], 1e-6 * (1 + std::fabs(want)));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::mixers
