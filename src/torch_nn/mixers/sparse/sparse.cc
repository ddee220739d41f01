#include "torch_nn/mixers/sparse/sparse.h"

#include "mixers/sparse/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_ops/sparse/clustered.h"
#include "torch_ops/sparse/reformer.h"

namespace tarn::nn {
namespace {

class Hashing : public ProjectedMixer {
 public:
  Hashing(const ModelConfig& layer, MixerPlace place)
      : ProjectedMixer(layer, place), keys_(layer) {}

 protected:
  int64_t HashSeed() const {
    if (!is_training()) return place_.draw();
    return torch::empty({}, torch::kInt64).random_().item<int64_t>();
  }

  const SparseKeys keys_;
};

// Tokens after the last one kept are padding, also as queries: [B].
torch::Tensor QueryLengths(const torch::Tensor& key_mask) {
  const torch::Tensor places = torch::arange(
      1, key_mask.size(1) + 1, key_mask.options().dtype(torch::kInt64));
  return key_mask.size(1) == 0
             ? torch::zeros({key_mask.size(0)}, places.options())
             : (key_mask * places).amax(1);
}

// The three kinds differ in their operator.
using ClusteredOperator = at::Tensor (*)(const at::Tensor&, const at::Tensor&,
                                         const at::Tensor&,
                                         const ops::ClusteredOptions&);

template <ClusteredOperator kOperator>
class Clustered : public Hashing {
 public:
  using Hashing::Hashing;

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    const Heads turned = Turned(heads, rotary);
    ops::ClusteredOptions options;
    options.clusters = keys_.clusters;
    options.iterations = keys_.iterations;
    options.bits = keys_.bits;
    options.hash_bias = keys_.hash_bias;
    options.topk = keys_.topk;
    if (key_mask.defined()) {
      options.key_mask = key_mask;
      options.query_lengths = QueryLengths(key_mask);
    }
    options.dropout = DrawAttentionDropout();
    options.hash_seed = HashSeed();
    return kOperator(turned.queries, turned.keys, turned.values, options);
  }

  const char* WhyNotRecurrent() const override {
    return "whose clusters depend on later tokens";
  }
};

// Reformer has a key projection, as its checkpoints do, but does not use it.
class Reformer : public Hashing {
 public:
  using Hashing::Hashing;

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    const Heads turned = Turned(heads, rotary);
    ops::ReformerOptions options;
    options.chunk_size = keys_.hash_chunk;
    options.bits = keys_.bits;
    options.rounds = keys_.rounds;
    options.dropout = DrawAttentionDropout();
    options.hash_seed = HashSeed();
    return ops::ReformerAttention(turned.queries, turned.values,
                                  Masks(key_mask, place_.causal, 0), options);
  }

  const char* WhyNotRecurrent() const override {
    return "whose buckets and chunks depend on later tokens";
  }
};

template <typename Kind>
std::shared_ptr<Mixer> MakeSparse(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Kind>(layer, place);
}

}  // namespace

std::vector<MixerRow> sparse::Mixers() {
  return {{"clustered", MakeSparse<Clustered<ops::ClusteredAttention>>},
          {"improved-clustered",
           MakeSparse<Clustered<ops::ImprovedClusteredAttention>>},
          {"causal-improved-clustered",
           MakeSparse<Clustered<ops::CausalImprovedClusteredAttention>>},
          {"reformer", MakeSparse<Reformer>}};
}

}  // namespace tarn::nn
