// The latent variant of form.h over its cache [c | k'] of all tokens. A score
// is
//   q_h . k_hj = (W_k,h^T q_h) . c_j + q'_h . k'_j
// so that all heads read one row a token, and W_v,h meets the weighted sum of c
// once.
#include <algorithm>

#include "kernels/gated_norm/gated_norm.h"
#include "kernels/gemm/gemm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax_attention/cache_rows.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "mixers/softmax/runtime.h"

namespace tarn::mixers {
namespace {

// Rows of a head that meet its matrices at once.
constexpr int64_t kLatentRows = 16;

// Columns of `in`: [H K] queries or [width] of the row that makes them, then
// [R + S]; of `extra`: the queries, where a row makes them.
class Latent final : public RuntimeMixer {
 public:
  Latent(const SoftmaxForm& form, MixerTensors& tensors)
      : s_(form),
        step_{.scale = static_cast<float>(form.scale),
              .softcap = static_cast<float>(form.softcap)} {
    const bool down = s_.query_latent > 0;
    latent_at_ = down ? s_.query_latent : s_.queries();
    in_ = tensors.Stack({down ? "query_down_projection" : "query_projection",
                         "latent_projection"},
                        {latent_at_, s_.latent_row()}, s_.d_model,
                        /*biases=*/false);
    if (down) {
      query_ = tensors.Stack({"query_projection"}, {s_.queries()},
                             s_.query_latent, /*biases=*/false);
      query_norm_ = tensors.Vector("query_down_norm.weight");
    }
    out_ = tensors.Stack({"out_projection"}, {s_.d_model}, s_.outputs(),
                         s_.out_bias);
    latent_norm_ = tensors.Vector("latent_norm.weight");
    key_ = tensors.Vector("key_projection.weight");
    value_ = tensors.Vector("value_projection.weight");
    if (s_.sinks) sinks_ = tensors.Vector("sinks");
  }

  int64_t bytes() const override {
    return RuntimeMixer::bytes() + query_.bytes();
  }
  int64_t row_floats() const override {
    return s_.query_latent > 0 ? s_.queries() : 0;
  }

  // The workspace of products, queries that meet c and sums of c for some rows,
  // then the scores of one.
  int64_t WorkerFloats(const MixerBlock& block) const override {
    int64_t most = 0;
    for (const Segment& s : block.segments) {
      most = std::max(most, s.state->capacity());
    }
    return RowStride(kGemmRowsWorkspaceFloats) +
           2 * kLatentRows * RowStride(s_.latent_row()) + RowStride(most);
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    if (s_.query_latent > 0) MakeQueries(block);
    block.ForRows(2 * s_.queries(), [&](int64_t row) { Prepare(block, row); });
    for (const Segment& segment : block.segments) Keep(block, segment, layer);
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t longest =
        *std::max_element(block.positions.begin(), block.positions.end());
    block.ForTasks(
        segments * s_.heads,
        (block.rows() + segments - 1) / segments *
            (longest * s_.latent_row() / 8 + s_.latent * s_.d_key / 8 + 200),
        [&](int64_t task, int worker) {
          Attend(block, block.segments[static_cast<size_t>(task / s_.heads)],
                 layer, task % s_.heads, worker);
        });
  }

  // Queries of a row that makes them; then the one row that all heads read, and
  // what is rotated; then heads.
  int phases() const override { return s_.query_latent > 0 ? 4 : 2; }
  int64_t units(int phase) const override {
    switch (phases() - phase) {
      case 3:
        return PanelUnits({&query_});
      case 1:
        return s_.heads;
      default:
        return 1;
    }
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    switch (phases() - share.phase) {
      case 4:
        for (int64_t row = 0; row < block.rows(); ++row) {
          NormQueries(block, row);
        }
        return;
      case 3:
        RunProducts({{.w = &query_, .x = block.in, .y = block.extra}}, share);
        return;
      case 2:
        for (int64_t row = 0; row < block.rows(); ++row) Prepare(block, row);
        for (const Segment& segment : block.segments) {
          Keep(block, segment, share.layer);
        }
        return;
      default:
        for (const Segment& segment : block.segments) {
          for (int64_t head = share.begin; head < share.end; ++head) {
            Attend(block, segment, share.layer, head, share.worker);
          }
        }
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    if (phases() - phase == 3) return query_.Panel(unit);
    return block.segments.front().state->Row(layer, 0, 0);
  }

 private:
  GatedNormOptions Norm(int64_t width) const {
    return {.groups = 1, .width = width, .eps = s_.norm_eps};
  }

  void NormQueries(const MixerBlock& block, int64_t row) const {
    float* x = block.in[row];
    GatedNormRow(Norm(s_.query_latent), x, nullptr, query_norm_.data(), nullptr,
                 x);
  }

  void MakeQueries(MixerBlock& block) const {
    block.ForRows(s_.query_latent,
                  [&](int64_t row) { NormQueries(block, row); });
    PackedMatMul(block.in.data, block.in.stride, block.rows(), query_,
                 {block.extra.data, block.extra.stride}, block.executor());
  }

  float* Queries(const MixerBlock& block, int64_t row) const {
    return s_.query_latent > 0 ? block.extra[row] : block.in[row];
  }

  // Norm of c, rotation of the shared parts.
  void Prepare(const MixerBlock& block, int64_t row) const {
    float* c = block.in[row] + latent_at_;
    GatedNormRow(Norm(s_.latent), c, nullptr, latent_norm_.data(), nullptr, c);
    if (s_.rotary == 0) return;
    const float* angles = block.places[row] + s_.angles();
    RotateHeads(angles, s_.rotary, 1, s_.shared, c + s_.latent);
    float* queries = Queries(block, row);
    for (int64_t head = 0; head < s_.heads; ++head) {
      RotateHeads(angles, s_.rotary, 1, s_.shared,
                  queries + head * s_.d_key + s_.own_key());
    }
  }

  void Keep(const MixerBlock& block, const Segment& segment,
            int64_t layer) const {
    const StatePlace& at = segment.state->layout().At(layer, 0);
    float* cache = segment.state->Row(layer, 0, 0);
    for (int64_t i = 0; i < segment.count; ++i) {
      StoreCacheRow(at.type, block.in[segment.row + i] + latent_at_,
                    s_.latent_row(),
                    cache + (segment.state->position + i) * at.width);
    }
  }

  void Attend(MixerBlock& block, const Segment& segment, int64_t layer,
              int64_t head, int worker) const {
    for (int64_t i = 0; i < segment.count; i += kLatentRows) {
      AttendRows(block, *segment.state, layer, head, segment.row + i,
                 std::min(kLatentRows, segment.count - i), worker);
    }
  }

  void AttendRows(MixerBlock& block, const SequenceState& state, int64_t layer,
                  int64_t head, int64_t row, int64_t count, int worker) const {
    const int64_t own = s_.own_key(), stride = RowStride(s_.latent_row());
    float* workspace = block.Scratch(worker);
    float* queries = workspace + RowStride(kGemmRowsWorkspaceFloats);
    float* sums = queries + kLatentRows * stride;
    float* scores = sums + kLatentRows * stride;
    const Rows from =
        s_.query_latent > 0 ? block.extra.From(row) : block.in.From(row);
    // [rows, K - S] [K - S, R].
    GemmRows({.rows = count,
              .columns = s_.latent,
              .depth = own,
              .a = {from.data + head * s_.d_key, from.stride},
              .b = {key_.data() + head * own * s_.latent, s_.latent},
              .c = queries,
              .c_stride = stride},
             0, count, workspace);
    SoftmaxStepOptions step = step_;
    if (s_.sinks) step.sink = &sinks_[static_cast<size_t>(head)];
    const StatePlace& at = state.layout().At(layer, 0);
    const float* cache = state.Row(layer, 0, 0);
    for (int64_t i = 0; i < count; ++i) {
      float* query = queries + i * stride;
      std::copy_n(from[i] + head * s_.d_key + own, s_.shared,
                  query + s_.latent);
      SoftmaxAttentionStep(
          query,
          {.keys = cache,
           .values = cache,
           .key_stride = at.width,
           .value_stride = at.width,
           .seq_len = block.positions[static_cast<size_t>(row + i)] + 1,
           .d_key = s_.latent_row(),
           .d_value = s_.latent,
           .type = at.type},
          step, scores, sums + i * stride);
    }
    // [rows, R] [V, R]^T.
    GemmRows(
        {.rows = count,
         .columns = s_.d_value,
         .depth = s_.latent,
         .a = {sums, stride},
         .b = {value_.data() + head * s_.d_value * s_.latent, s_.latent, true},
         .c = block.out[row] + head * s_.d_value,
         .c_stride = block.out.stride},
        0, count, workspace);
  }

  const SoftmaxForm s_;
  const SoftmaxStepOptions step_;
  int64_t latent_at_ = 0;  // column of c
  WeightMatrix query_;     // [H K, width], where a row makes queries
  std::vector<float> query_norm_, latent_norm_;  // [width], [R]
  std::vector<float> key_, value_;               // [H (K - S), R], [H V, R]
  std::vector<float> sinks_;                     // [H]
};

}  // namespace

std::unique_ptr<RuntimeMixer> MakeLatent(const SoftmaxForm& form,
                                         MixerTensors& tensors) {
  return std::make_unique<Latent>(form, tensors);
}

}  // namespace tarn::mixers
