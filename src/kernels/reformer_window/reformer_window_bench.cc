// Benchmark case of reformer's windows: seq_len=4096 heads=8 rounds=4 chunk=32,
// random buckets. Each pair of a window counts as one FLOP.
#include <vector>

#include "core/rng.h"
#include "kernels/bench_case.h"
#include "kernels/reformer_window/reformer_window.h"

namespace tarn::bench {
namespace {

class Window final : public Case {
 public:
  Window(Params& params, int) {
    in_.seq_len = params.Int("seq_len", 4096);
    in_.heads = in_.planes = params.Int("heads", 8);
    in_.rounds = params.Int("rounds", 4);
    in_.chunk = params.Int("chunk", 32);
    in_.causal = in_.masked = in_.counted = true;
    const int64_t tasks = in_.planes * in_.rounds;
    Rng rng(1);
    buckets_.resize(tasks * in_.seq_len);
    for (int32_t& bucket : buckets_) {
      bucket = static_cast<int32_t>(rng.Below(32));
    }
    std::vector<int64_t> position(buckets_.size()), place(buckets_.size());
    SerialExecutor executor;
    ReformerSort(buckets_.data(), nullptr, 1, tasks, in_.seq_len,
                 position.data(), place.data(), executor);
    chunk_of_.resize(buckets_.size());
    for (int64_t plane = 0; plane < in_.planes; ++plane) {
      for (int64_t t = 0; t < in_.seq_len; ++t) {
        for (int64_t r = 0; r < in_.rounds; ++r) {
          chunk_of_[(plane * in_.seq_len + t) * in_.rounds + r] =
              static_cast<int32_t>(
                  place[(plane * in_.rounds + r) * in_.seq_len + t] /
                  in_.chunk);
        }
      }
    }
    in_.buckets = buckets_.data();
    in_.chunk_of = chunk_of_.data();
    Place(position);
    bias_.resize(in_.planes * in_.chunks() * in_.chunk * in_.width());
    work_.useful_flop = work_.executed_flop = static_cast<double>(bias_.size());
    work_.bytes = 4 * work_.useful_flop;
  }
  void Run(Executor& executor) override {
    ReformerBias(in_, 0, own_.data(), keys_.data(), nullptr, nullptr,
                 bias_.data(), executor);
  }

 private:
  // Positions of round 0 in its chunks, and of the keys each chunk reads.
  void Place(const std::vector<int64_t>& position) {
    for (int64_t plane = 0; plane < in_.planes; ++plane) {
      const int64_t* order = position.data() + plane * in_.rounds * in_.seq_len;
      const auto at = [&](int64_t p) {
        return p >= 0 && p < in_.seq_len ? order[p] : -1;
      };
      for (int64_t c = 0; c < in_.chunks(); ++c) {
        const int64_t end = (c + 1) * in_.chunk;
        for (int64_t p = end - in_.chunk; p < end; ++p) own_.push_back(at(p));
        for (int64_t p = end - in_.width(); p < end; ++p) {
          keys_.push_back(at(p));
        }
      }
    }
  }

  ReformerWindowInputs in_;
  std::vector<int32_t> buckets_, chunk_of_;
  std::vector<int64_t> own_, keys_;
  std::vector<float> bias_;
};

}  // namespace

void RegisterReformerWindow(Registry& registry) {
  registry.push_back({"reformer_bias", NewCase<Window>});
}

}  // namespace tarn::bench
