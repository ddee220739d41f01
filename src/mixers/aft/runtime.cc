#include "mixers/aft/runtime.h"

#include <algorithm>
#include <limits>

#include "kernels/aft_simple/aft_simple.h"
#include "mixers/common/runtime_attention.h"

namespace tarn::mixers {
namespace {

enum SimpleTensor : int64_t { kM, kA, kB };  // of SimpleState

// Heads do not matter: a share is 64 channels of all heads side by side. A
// channel depends on no other, so any cut gives the same bits.
class Simple final : public RuntimeAttention {
 public:
  Simple(const ModelConfig& layer, MixerTensors& tensors)
      : RuntimeAttention(layer, tensors) {}

  int64_t units(int) const override { return shares(); }

  // m, a and b of a share, where no state holds them.
  int64_t WorkerFloats(const MixerBlock&) const override { return 3 * kShare; }

  void Mix(MixerBlock& block, int64_t layer) const override {
    ForShares(block, [&](const Segment& segment, int64_t share, int) {
      Advance(block, segment, layer, share * kShare, Channels(share));
    });
  }

  // Every row reads all keys of its segment.
  void MixSequences(MixerBlock& block) const override {
    ForShares(block, [&](const Segment& segment, int64_t share, int worker) {
      float* m = block.Scratch(worker);
      std::fill_n(m, kShare, -std::numeric_limits<float>::infinity());
      std::fill_n(m + kShare, 2 * kShare, 0.0f);
      Run(block, segment, share * kShare, Channels(share), /*causal=*/false,
          {m, m + kShare, m + 2 * kShare});
    });
  }

  void Step(MixerBlock& block, const StepShare& share) const override {
    const StepColumns own = ColumnsOf(value_width_, kShare, share);
    for (const Segment& segment : block.segments) {
      Advance(block, segment, share.layer, own.begin, own.count);
    }
  }

  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t share) const override {
    return block.segments.front().state->Tensor(layer, kM) + share * kShare;
  }

 private:
  static constexpr int64_t kShare = 64;  // four vectors of AVX-512

  int64_t shares() const { return ColumnUnits(value_width_, kShare); }

  int64_t Channels(int64_t share) const {
    return std::min(kShare, value_width_ - share * kShare);
  }

  // f(segment, share, worker) for every share of every segment.
  template <typename F>
  void ForShares(MixerBlock& block, const F& f) const {
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t rows_each = (block.rows() + segments - 1) / segments;
    // A row of a share: three exponentials of four vectors, some 60 ns.
    block.ForTasks(segments * shares(), rows_each * 60,
                   [&](int64_t task, int worker) {
                     f(block.segments[static_cast<size_t>(task / shares())],
                       task % shares(), worker);
                   });
  }

  void Advance(const MixerBlock& block, const Segment& segment, int64_t layer,
               int64_t begin, int64_t channels) const {
    SequenceState& state = *segment.state;
    Run(block, segment, begin, channels, /*causal=*/true,
        {state.Tensor(layer, kM) + begin, state.Tensor(layer, kA) + begin,
         state.Tensor(layer, kB) + begin});
  }

  void Run(const MixerBlock& block, const Segment& segment, int64_t begin,
           int64_t channels, bool causal, const AftSimpleState& state) const {
    const auto view = [&](float* row, int64_t stride) {
      return HeadView(row + begin, segment.count, stride, channels);
    };
    const int64_t row = segment.row, stride = block.in.stride;
    AftSimpleInputs in;
    in.queries = view(Query(block, row, 0), stride);
    in.keys = view(Key(block, row, 0), stride);
    in.values = view(Value(block, row, 0), stride);
    in.causal = causal;
    SerialExecutor serial;
    AftSimpleForward(in, state, view(Out(block, row, 0), block.out.stride),
                     serial);
  }
};

std::unique_ptr<RuntimeMixer> MakeSimple(const ModelConfig& layer,
                                         MixerTensors& tensors) {
  return std::make_unique<Simple>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> aft::RuntimeMixers() {
  return {{"aft-simple", nullptr, MakeSimple}};
}

}  // namespace tarn::mixers
