// Benchmark cases of the hashes: seq_len=4096 heads=8 d_key=64, bits=32
// (buckets: bits=16 rounds=4; clusters: clusters=100 iterations=10). A
// projection counts two FLOP per product; comparisons and counts are not
// counted.
#include <vector>

#include "kernels/bench_case.h"
#include "kernels/hash/hash.h"

namespace tarn::bench {
namespace {

class Hashing : public Case {
 protected:
  Hashing(Params& params, int64_t columns)
      : seq_len_(params.Int("seq_len", 4096)),
        heads_(params.Int("heads", 8)),
        d_key_(params.Int("d_key", 64)),
        queries_(seq_len_ * heads_ * d_key_, DType::kF32) {
    const double rows = static_cast<double>(seq_len_ * heads_);
    const double width = static_cast<double>(d_key_);
    work_.useful_flop = work_.executed_flop =
        2 * rows * width * static_cast<double>(columns);
    work_.bytes = 4 * rows * width;
  }
  HashRows<float> rows() {
    return {queries_.f32(), nullptr, 1, seq_len_, heads_, d_key_};
  }

  int64_t seq_len_, heads_, d_key_;
  Values queries_;
};

class Clusters final : public Hashing {
 public:
  Clusters(Params& params, int) : Clusters(params, params.Int("bits", 32)) {}
  void Run(Executor& executor) override {
    ClusterQueries(rows(), options_, clusters_.data(), executor);
  }

 private:
  Clusters(Params& params, int64_t bits)
      : Hashing(params, bits),
        options_{params.Int("clusters", 100), params.Int("iterations", 10),
                 bits},
        clusters_(seq_len_ * heads_) {}
  ClusterOptions options_;
  std::vector<int64_t> clusters_;
};

class Buckets final : public Hashing {
 public:
  Buckets(Params& params, int)
      : Buckets(params, params.Int("bits", 16), params.Int("rounds", 4)) {}
  void Run(Executor& executor) override {
    HashBuckets(rows(), bits_, rounds_, 7, buckets_.data(), executor);
  }

 private:
  Buckets(Params& params, int64_t bits, int64_t rounds)
      : Hashing(params, bits * rounds),
        bits_(bits),
        rounds_(rounds),
        buckets_(seq_len_ * heads_ * rounds) {}
  int64_t bits_, rounds_;
  std::vector<int32_t> buckets_;
};

}  // namespace

void RegisterHash(Registry& registry) {
  registry.push_back({"cluster_queries", NewCase<Clusters>});
  registry.push_back({"hash_buckets", NewCase<Buckets>});
}

}  // namespace tarn::bench
