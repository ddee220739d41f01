#include "mixers/softmax/runtime.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/gate_rows/gate_rows.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/rotary/rotary.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "kernels/softmax_attention/softmax_rows.h"

namespace tarn::mixers {
namespace {

enum SoftmaxTensor : int64_t { kKeys, kValues };  // of the spec's state

// Keys and values of a head beyond which a step fetches them ahead.
constexpr int64_t kStreamedBytes = 65536;

// A share, and a task, is a head of keys with the heads of queries that read
// it. Columns of `in`: [H K] queries, [G K] keys, [G V] values, [H V] gates.
class Softmax final : public RuntimeMixer {
 public:
  Softmax(const SoftmaxForm& form, MixerTensors& tensors)
      : s_(form),
        ring_(StateTensor{.name = "keys", .shape = {}, .kept = form.window}
                  .ring()),
        step_{.scale = static_cast<float>(form.scale),
              .softcap = static_cast<float>(form.softcap)} {
    std::vector<std::string> names = {"query_projection", "key_projection",
                                      "value_projection"};
    std::vector<int64_t> rows = {s_.queries(), s_.keys(), s_.values()};
    if (s_.gated) {
      names.push_back("gate_projection");
      rows.push_back(s_.outputs());
    }
    in_ = tensors.Stack(names, rows, s_.d_model, s_.qkv_bias);
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.outputs(),
                         s_.out_bias);
    if (s_.norm != HeadNorm::kNone) {
      query_norm_ = tensors.Vector("query_norm.weight");
      key_norm_ = tensors.Vector("key_norm.weight");
    }
    if (s_.sinks) sinks_ = tensors.Vector("sinks");
  }

  // What rows that are read need (ScoreFloats), then the prepared rows of a
  // step (FullRows). Grows when the cache does, not from token to token.
  int64_t WorkerFloats(const MixerBlock& block) const override {
    const bool prepares = s_.norm == HeadNorm::kFull;
    return ScoreFloats(block) + (prepares ? kStepRows * PreparedStride() : 0);
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    PrepareRows(block);
    const int64_t longest =
        s_.window > 0
            ? s_.window
            : *std::max_element(block.positions.begin(), block.positions.end());
    const int64_t shares = s_.key_heads;
    ForShares(block, longest, shares,
              [&](const Segment& segment, int64_t share, int worker) {
                Attend(block, segment, layer, share, worker, /*prepared=*/{});
              });
  }

  void MixSequences(MixerBlock& block) const override {
    PrepareRows(block);
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t keys = s_.context > 0 ? s_.context : block.rows() / segments;
    ForShares(block, keys, s_.key_heads,
              [&](const Segment& segment, int64_t share, int worker) {
                AttendAround(block, segment, share, worker);
              });
  }

  int64_t units(int) const override { return s_.key_heads; }
  void Step(MixerBlock& block, const StepShare& own) const override {
    Rows prepared;
    if (s_.norm == HeadNorm::kFull && own.begin < own.end) {
      prepared = FullRows(block, own.worker);
    }
    for (int64_t share = own.begin; share < own.end; ++share) {
      for (int64_t row = 0; prepared.data == nullptr && row < block.rows();
           ++row) {
        float* in = block.in[row];
        Prepare(block, row, s_.group(), query_norm_,
                in + share * s_.group() * s_.d_key);
        Prepare(block, row, 1, key_norm_, in + s_.queries() + share * s_.d_key);
      }
      for (const Segment& segment : block.segments) {
        Attend(block, segment, own.layer, share, own.worker, prepared);
      }
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t share) const override {
    const SequenceState& state = *block.segments.front().state;
    return Head(state, layer, kKeys, share,
                CacheRowWords(state.layout().At(layer, kKeys).type, s_.d_key));
  }

 private:
  // The scores of a row, or what several rows that read one cache need.
  int64_t ScoreFloats(const MixerBlock& block) const {
    int64_t most = ring_;
    for (const Segment& s : block.segments) {
      if (s.state == nullptr) {
        most = std::max(
            most, s_.context > 0 ? std::min(s_.context, s.count) : s.count);
      } else if (ring_ == 0) {
        most = std::max(most, s.state->capacity());
      }
    }
    return std::max(RowStride(most), SoftmaxRowsFloats(most, s_.d_value));
  }
  int64_t PreparedStride() const { return RowStride(s_.queries() + s_.keys()); }

  // f(segment, share, worker) for every share of every segment, whose rows read
  // about `keys` keys each.
  template <typename F>
  void ForShares(MixerBlock& block, int64_t keys, int64_t shares,
                 const F& f) const {
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t rows_each = (block.rows() + segments - 1) / segments;
    block.ForTasks(
        segments * shares,
        s_.group() * rows_each * (keys * (s_.d_key + s_.d_value) / 16 + 100),
        [&](int64_t task, int worker) {
          f(block.segments[static_cast<size_t>(task / shares)], task % shares,
            worker);
        });
  }

  // Norm of each head, then rotation, of `heads` adjacent heads.
  void Prepare(const MixerBlock& block, int64_t row, int64_t heads,
               const std::vector<float>& weight, float* x) const {
    if (s_.norm == HeadNorm::kHead) {
      GatedNormRow({.groups = heads, .width = s_.d_key, .eps = s_.norm_eps}, x,
                   nullptr, weight.data(), nullptr, x);
    }
    if (s_.rotary > 0) {
      RotateHeads(block.places[row] + s_.angles(), s_.rotary, heads, s_.d_key,
                  x);
    }
  }

  // Queries and keys of a row under the norm over all heads, rotated.
  void PrepareFull(const MixerBlock& block, int64_t row, float* to) const {
    const float* in = block.in[row];
    GatedNormRow({.groups = 1, .width = s_.queries(), .eps = s_.norm_eps}, in,
                 nullptr, query_norm_.data(), nullptr, to);
    GatedNormRow({.groups = 1, .width = s_.keys(), .eps = s_.norm_eps},
                 in + s_.queries(), nullptr, key_norm_.data(), nullptr,
                 to + s_.queries());
    if (s_.rotary > 0) {
      RotateHeads(block.places[row] + s_.angles(), s_.rotary,
                  s_.heads + s_.key_heads, s_.d_key, to);
    }
  }

  // All shares of a step read whole rows, so each worker prepares copies.
  Rows FullRows(MixerBlock& block, int worker) const {
    const Rows to = {block.Scratch(worker) + ScoreFloats(block),
                     PreparedStride()};
    for (int64_t row = 0; row < block.rows(); ++row) {
      PrepareFull(block, row, to[row]);
    }
    return to;
  }

  void PrepareRows(MixerBlock& block) const {
    if (s_.norm == HeadNorm::kNone && s_.rotary == 0) return;
    block.ForRows(s_.queries(), [&](int64_t row) {
      float* x = block.in[row];
      if (s_.norm == HeadNorm::kFull) {
        PrepareFull(block, row, x);
      } else if (s_.norm == HeadNorm::kNone) {  // heads are adjacent
        RotateHeads(block.places[row] + s_.angles(), s_.rotary,
                    s_.heads + s_.key_heads, s_.d_key, x);
      } else {
        Prepare(block, row, s_.heads, query_norm_, x);
        Prepare(block, row, s_.key_heads, key_norm_, x + s_.queries());
      }
    });
  }

  // The rows of a head of keys, `words` each: those of the ring, or of all
  // tokens.
  const float* Head(const SequenceState& state, int64_t layer,
                    SoftmaxTensor tensor, int64_t head, int64_t words) const {
    return ring_ > 0 ? state.Tensor(layer, tensor) + head * ring_ * words
                     : state.Row(layer, tensor, head);
  }

  // The segment's rows, each over the keys up to its own.
  void Attend(MixerBlock& block, const Segment& segment, int64_t layer,
              int64_t share, int worker, const Rows& prepared) const {
    const SequenceState& state = *segment.state;
    const CacheType type = state.layout().At(layer, kKeys).type;
    const int64_t key_words = CacheRowWords(type, s_.d_key);
    const int64_t value_words = CacheRowWords(type, s_.d_value);
    KeyValueCache cache = {
        .keys = Head(state, layer, kKeys, share, key_words),
        .values = Head(state, layer, kValues, share, value_words),
        .key_stride = key_words,
        .value_stride = value_words,
        .d_key = s_.d_key,
        .d_value = s_.d_value,
        .type = type};
    const int64_t first = share * s_.group(), end = first + s_.group();
    if (ring_ > 0) {  // each row takes its place in the ring, then reads it
      for (int64_t i = 0; i < segment.count; ++i) {
        const int64_t row = segment.row + i, at = state.position + i;
        Keep(block, row, share, at % ring_, cache, prepared);
        cache.seq_len = std::min(at + 1, ring_);
        for (int64_t head = first; head < end; ++head) {
          AttendOne(block, row, head, cache, worker, prepared);
        }
      }
      return;
    }
    for (int64_t i = 0; i < segment.count; ++i) {
      Keep(block, segment.row + i, share, state.position + i, cache, prepared);
    }
    // Several rows read the keys repeatedly, a single row continues to the next
    // head. What is small the hardware fetches by itself.
    const int64_t bytes = (state.position + segment.count) *
                          (key_words + value_words) *
                          static_cast<int64_t>(sizeof(float));
    cache.streams = segment.count == 1 && bytes > kStreamedBytes;
    cache.next =
        share + 1 < s_.key_heads ? state.Row(layer, kKeys, share + 1) : nullptr;
    Batch batch(*this, block, cache, worker, prepared);
    for (int64_t i = 0; i < segment.count; ++i) {
      const int64_t row = segment.row + i;
      const int64_t seen = block.positions[static_cast<size_t>(row)] + 1;
      const int64_t left =  // tokens that are out of the window
          s_.window > 0 ? std::max<int64_t>(seen - s_.window, 0) : 0;
      KeyValueCache read = cache;
      read.keys += left * cache.key_stride;
      read.values += left * cache.value_stride;
      read.seq_len = seen - left;
      for (int64_t head = first; head < end; ++head) {
        if (segment.count > 1 && left == 0) {
          batch.Add(row, head, seen);
        } else {
          AttendOne(block, row, head, read, worker, prepared);
        }
      }
    }
    batch.Run();
  }

  // Queries of several rows and heads that read one cache from its beginning.
  class Batch {
   public:
    Batch(const Softmax& mixer, MixerBlock& block, const KeyValueCache& cache,
          int worker, const Rows& prepared)
        : mixer_(mixer),
          block_(block),
          cache_(cache),
          worker_(worker),
          prepared_(prepared) {}

    void Add(int64_t row, int64_t head, int64_t seq_len) {
      const SoftmaxForm& s = mixer_.s_;
      queries_[count_] = {
          mixer_.Prepared(block_, row, prepared_) + head * s.d_key,
          block_.out[row] + head * s.d_value, seq_len,
          s.sinks ? &mixer_.sinks_[static_cast<size_t>(head)] : nullptr};
      places_[count_] = {row, head};
      if (++count_ == kMaxSoftmaxRows) Run();
    }

    void Run() {
      if (count_ == 0) return;
      const auto count = static_cast<size_t>(std::exchange(count_, 0));
      SoftmaxAttentionRows({queries_.data(), count}, cache_, mixer_.step_,
                           block_.Scratch(worker_));
      for (size_t i = 0; i < count; ++i) {
        mixer_.Gate(block_, places_[i].first, places_[i].second);
      }
    }

   private:
    const Softmax& mixer_;
    MixerBlock& block_;
    const KeyValueCache& cache_;
    const int worker_;
    const Rows prepared_;
    std::array<SoftmaxQuery, kMaxSoftmaxRows> queries_;
    std::array<std::pair<int64_t, int64_t>, kMaxSoftmaxRows> places_;
    int64_t count_ = 0;
  };

  // Queries and keys of a row, as they are read.
  static const float* Prepared(const MixerBlock& block, int64_t row,
                               const Rows& prepared) {
    return prepared.data != nullptr ? prepared[row] : block.in[row];
  }

  // Puts a row's key and value at a place of its cache, as they are read back:
  // a row's own key, too.
  void Keep(const MixerBlock& block, int64_t row, int64_t share, int64_t place,
            const KeyValueCache& cache, const Rows& prepared) const {
    const float* in = block.in[row];
    const float* keys = Prepared(block, row, prepared) + s_.queries();
    StoreCacheRow(cache.type, keys + share * s_.d_key, s_.d_key,
                  const_cast<float*>(cache.keys) + place * cache.key_stride);
    StoreCacheRow(
        cache.type, in + s_.queries() + s_.keys() + share * s_.d_value,
        s_.d_value,
        const_cast<float*>(cache.values) + place * cache.value_stride);
  }

  void AttendOne(MixerBlock& block, int64_t row, int64_t head,
                 const KeyValueCache& cache, int worker,
                 const Rows& prepared) const {
    const float* queries = Prepared(block, row, prepared);
    float* out = block.out[row] + head * s_.d_value;
    SoftmaxStepOptions step = step_;
    if (s_.sinks) step.sink = &sinks_[static_cast<size_t>(head)];
    SoftmaxAttentionStep(queries + head * s_.d_key, cache, step,
                         block.Scratch(worker), out);
    Gate(block, row, head);
  }

  void Gate(MixerBlock& block, int64_t row, int64_t head) const {
    if (!s_.gated) return;
    float* out = block.out[row] + head * s_.d_value;
    float* gate = block.in[row] + s_.queries() + s_.keys() + s_.values() +
                  head * s_.d_value;
    SigmoidRow(gate, s_.d_value, gate);
    for (int64_t i = 0; i < s_.d_value; ++i) out[i] *= gate[i];
  }

  // The rows of a whole sequence, each over all of it or around itself.
  void AttendAround(MixerBlock& block, const Segment& segment, int64_t share,
                    int worker) const {
    const int64_t before = s_.context / 2, after = (s_.context + 1) / 2;
    const int64_t first = share * s_.group();
    if (s_.context == 0 && segment.count > 1) {
      const float* in = block.in[segment.row] + s_.queries();
      const KeyValueCache all = {.keys = in + share * s_.d_key,
                                 .values = in + s_.keys() + share * s_.d_value,
                                 .key_stride = block.in.stride,
                                 .value_stride = block.in.stride,
                                 .d_key = s_.d_key,
                                 .d_value = s_.d_value};
      Batch batch(*this, block, all, worker, /*prepared=*/{});
      for (int64_t i = 0; i < segment.count; ++i) {
        for (int64_t head = first; head < first + s_.group(); ++head) {
          batch.Add(segment.row + i, head, segment.count);
        }
      }
      batch.Run();
      return;
    }
    for (int64_t head = first; head < first + s_.group(); ++head) {
      for (int64_t i = 0; i < segment.count; ++i) {
        const int64_t begin =
            s_.context > 0 ? std::max<int64_t>(i - before, 0) : 0;
        const int64_t end =
            s_.context > 0 ? std::min(i + after, segment.count) : segment.count;
        const float* keys =
            block.in[segment.row + begin] + s_.queries() + share * s_.d_key;
        const float* values = block.in[segment.row + begin] + s_.queries() +
                              s_.keys() + share * s_.d_value;
        AttendOne(block, segment.row + i, head,
                  {keys, values, block.in.stride, block.in.stride, end - begin,
                   s_.d_key, s_.d_value},
                  worker, /*prepared=*/{});
      }
    }
  }

  const SoftmaxForm s_;
  const int64_t ring_;  // tokens of a window held as a ring
  const SoftmaxStepOptions step_;
  std::vector<float> query_norm_, key_norm_;  // [K], or [H K] and [G K]
  std::vector<float> sinks_;                  // [H]
};

std::unique_ptr<RuntimeMixer> NewSoftmax(const ModelConfig& layer,
                                         MixerTensors& tensors) {
  const SoftmaxForm form(layer);
  if (form.latent > 0) return MakeLatent(form, tensors);
  return std::make_unique<Softmax>(form, tensors);
}

}  // namespace

void RotateHeads(const float* angles, int64_t width, int64_t heads,
                 int64_t stride, float* x) {
  const float* sines = angles + width / 2;
  if (width == stride) return RotateRow(angles, sines, heads, width, x);
  for (int64_t head = 0; head < heads; ++head) {
    RotateRow(angles, sines, 1, width, x + head * stride);
  }
}

std::vector<RuntimeMixerRow> softmax::RuntimeMixers() {
  return {{"full", nullptr, NewSoftmax, MakeSoftmaxCross},
          {"local", nullptr, NewSoftmax},
          {kGatedSoftmax, nullptr, NewSoftmax}};
}

}  // namespace tarn::mixers
