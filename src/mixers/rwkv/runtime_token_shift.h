// What the two RWKV mixers share in the runtime: rows and the rows before them,
// products of shifted rows, and the recurrence over segments and heads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/recurrence/recurrent_inputs.h"
#include "mixers/rwkv/form.h"
#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

/// The mixer has no first product: `in` holds the normalised rows,
/// and every product reads another mixture of a row and the one before it.
class TokenShift : public RuntimeMixer {
 public:
  int64_t in_width() const override { return s_.d_model; }
  int64_t bytes() const override;
  int64_t row_floats() const override { return extra_width_; }

  void Mix(MixerBlock& block, int64_t layer) const final;

 protected:
  enum Tensor : int64_t { kS, kShift };  // of the spec's state
  static constexpr int64_t kShare = 64;  // columns that a step's share mixes

  TokenShift(const ModelConfig& layer, MixerTensors& tensors);

  /// Makes the mixtures of all rows: MixRow for each, and the step between.
  virtual void Shift(MixerBlock& block, int64_t layer) const = 0;
  /// Makes queries, keys, values, gates and what else a head reads.
  virtual void Project(MixerBlock& block) const = 0;
  /// The recurrence of one head over the rows of a segment, S [K, K].
  virtual void Advance(const MixerBlock& block, const Segment& segment,
                       int64_t head, float* state) const = 0;
  /// The output of `count` heads of a row, in place.
  virtual void Finish(const MixerBlock& block, int64_t row, int64_t first,
                      int64_t count) const = 0;

  /// The last phase of a step: units are heads, for which `prepare(row, first,
  /// count)` makes what Advance reads.
  template <typename F>
  void StepHeads(const MixerBlock& block, const StepShare& share,
                 const F& prepare) const {
    const int64_t count = share.end - share.begin;
    for (int64_t row = 0; row < block.rows(); ++row) {
      prepare(row, share.begin, count);
    }
    for (const Segment& segment : block.segments) {
      for (int64_t head = share.begin; head < share.end; ++head) {
        Advance(block, segment, head, State(segment, share.layer, head));
      }
    }
    for (int64_t row = 0; row < block.rows(); ++row) {
      Finish(block, row, share.begin, count);
    }
  }
  float* State(const Segment& segment, int64_t layer, int64_t head) const {
    return segment.state->Tensor(layer, kS) + head * s_.d_key * s_.d_key;
  }
  /// The norm of `count` heads, in place; gate: null, or of these heads.
  void NormHeads(int64_t first, int64_t count, const float* gate,
                 float* out) const;
  /// A product from and to columns of `extra`, in a step.
  static StepProduct Product(const MixerBlock& block, const WeightMatrix& w,
                             int64_t from, int64_t to) {
    return {
        .w = &w, .x = block.extra.Columns(from), .y = block.extra.Columns(to)};
  }

  /// The row before `row` in its sequence.
  const float* Before(const MixerBlock& block, int64_t row,
                      int64_t layer) const {
    return block.RowBefore(block.in, row, layer, kShift);
  }
  /// Columns of `extra` for `width` numbers of a row.
  int64_t Keep(int64_t width);
  /// extra columns `to` = W times `from`, for all rows.
  void Multiply(MixerBlock& block, const WeightMatrix& w, int64_t from,
                int64_t to) const;
  /// A matrix without a bias, or with one; its bytes are counted.
  WeightMatrix Matrix(MixerTensors& tensors, const std::string& name,
                      int64_t rows, int64_t inputs, bool bias = false);
  /// The matrices of a tensor [count * rows, inputs]; their bytes are counted.
  std::vector<WeightMatrix> Matrices(MixerTensors& tensors,
                                     const std::string& name, int64_t count,
                                     int64_t rows, int64_t inputs);
  /// The rows of a segment, `width` columns of `extra`.
  TensorView View(const MixerBlock& block, const Segment& segment,
                  int64_t column, int64_t width) const;
  TensorView OutView(const MixerBlock& block, const Segment& segment,
                     int64_t head) const;

  const RwkvSizes s_;
  const std::vector<float> shift_;                    // token_shift [inputs, D]
  const std::vector<float> bonus_;                    // [H, K]
  const std::vector<float> norm_weight_, norm_bias_;  // [H K]
  GatedNormOptions norm_;
  int64_t mixed_ = -1;  // the mixtures [inputs, D]
  int64_t query_ = -1, key_ = -1, value_ = -1;
  int64_t decay_down_ = -1, gates_ = -1;

 private:
  int64_t extra_width_ = 0, matrix_bytes_ = 0;
};

}  // namespace tarn::mixers
