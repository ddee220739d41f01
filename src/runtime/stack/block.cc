#include "runtime/stack/block.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rotary/rotary.h"
#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

// Rows in a piece: enough that reading the weights hides behind the products,
// few enough that the rows in use stay in L2.
constexpr int64_t kMaxRows = 256;
// Scratch of a piece in floats (64 MiB): wide models take smaller pieces.
constexpr int64_t kMaxScratch = int64_t{1} << 24;
// Scratch for more rows is not kept from one call to the next.
constexpr int64_t kKeptRows = 4096;

// The power of two that brings the largest entry near 1; 1 where there is
// none. An exact quotient does not change, and underflows later.
float PowerOfTwoScale(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest == 0.0f || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126));
}

}  // namespace

Block::Block(const ModelConfig& config, const StackWeights& weights,
             Executor& executor)
    : config_(config),
      weights_(weights),
      executor_(executor),
      form_(config),
      key_width_(config.n_heads * config.d_key),
      value_width_(config.n_heads * config.d_value),
      rotated_features_(config.attention == AttentionKind::kLinear &&
                        config.positions == Positions::kRotary &&
                        config.rotary_place == RotaryPlace::kAfter),
      position_rows_(config) {
  AssignScratch(0);  // measures a row
  piece_rows_ = std::clamp<int64_t>(kMaxScratch / row_floats_, 1, kMaxRows);
  // Lists never grow past a piece, so that steps allocate nothing.
  tokens_.reserve(static_cast<size_t>(piece_rows_));
  positions_.reserve(static_cast<size_t>(piece_rows_));
}

// Lays the arrays one behind the other.
void Block::AssignScratch(int64_t rows) {
  if (rows > 0) scratch_ = AlignedBuffer<float>(rows * row_floats_);
  float* next = scratch_.data();
  int64_t floats = 0;
  const auto take = [&](Rows& array, int64_t width, int64_t count) {
    array.stride = RowStride(width);
    array.data = next;
    if (count > 0) next += count * array.stride;
    floats += array.stride;
  };
  const int64_t piece = std::min(rows, piece_rows_);
  take(x_, config_.d_model, rows);
  take(normed_, config_.d_model, piece);
  take(qkv_, 2 * key_width_ + value_width_, rows);
  take(attended_, value_width_, rows);
  take(hidden_, config_.d_ff, piece);
  if (position_rows_.width() > 0) take(places_, position_rows_.width(), rows);
  if (rotated_features_) {
    take(features_, 2 * key_width_, rows);
    take(denominators_, config_.n_heads, rows);
  }
  row_floats_ = floats;
  scratch_rows_ = rows;
}

void Block::GrowScratch(int64_t most) {
  if (rows() <= scratch_rows_) return;
  AssignScratch(std::max(rows(), std::min(most, 2 * scratch_rows_)));
}

void Block::GrowWorkerScratch(int64_t floats) {
  if (floats <= worker_floats_) return;
  floats = PaddedFloats(std::max(floats, 2 * worker_floats_));
  worker_scratch_ = AlignedBuffer<float>(floats * executor_.width());
  worker_floats_ = floats;
}

void Block::Shrink() {
  if (scratch_rows_ <= kKeptRows) return;
  scratch_ = AlignedBuffer<float>();
  scratch_rows_ = 0;
  worker_scratch_ = AlignedBuffer<float>();
  worker_floats_ = 0;
}

void Block::ClearRows() {
  tokens_.clear();
  positions_.clear();
}

void Block::AddRows(std::span<const int32_t> tokens, int64_t position) {
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    positions_.push_back(position++);
  }
}

// x = embedding (+ or | position), Vaswani et al. 2017, section 3.4-3.5.
void Block::Embed(int64_t row) {
  float* x = x_[row];
  const int64_t width = config_.EmbeddingWidth(), d_model = config_.d_model;
  weights_.embedding.ReadRow(tokens_[row], x);
  switch (config_.positions) {
    case Positions::kLearned: {
      // Past the table the last row stands for every position.
      const int64_t at = std::min(positions_[row], config_.max_positions - 1);
      AddToRow(weights_.positions.data() + at * d_model, d_model, x);
      break;
    }
    case Positions::kSinusoidal:
      if (config_.position_combine == PositionCombine::kConcat) {
        std::copy_n(places_[row], d_model - width, x + width);
      } else {
        AddToRow(places_[row], d_model, x);
      }
      break;
    case Positions::kRotary:  // turns queries and keys, layer by layer
    case Positions::kNone:
      break;
  }
}

void Block::EmbedRows() {
  const bool computed = position_rows_.width() > 0;
  if (computed) {
    const auto missing = position_rows_.Claim(positions_);
    // Sines and cosines in double: about 20 ns an entry.
    ForTasks(static_cast<int64_t>(missing.size()), 20 * position_rows_.width(),
             [&](int64_t i, int) { position_rows_.Fill(missing[i]); });
  }
  ForRows(2 * config_.d_model, [&](int64_t row) {
    if (computed) position_rows_.Get(positions_[row], places_[row]);
    Embed(row);
  });
}

void Block::Norm(const NormWeights& norm, const float* from, float* to) const {
  LayerNormRow(from, config_.d_model, norm.weight.data(), norm.bias.data(),
               static_cast<float>(config_.norm_eps), to);
}

// Pre-norm:  x + Sublayer(LN(x)).   Post-norm: LN(x + Sublayer(x)).
Block::Rows Block::Input(const NormWeights& norm, int64_t begin,
                         int64_t count) {
  if (config_.norm != tarn::Norm::kPre) return x_.From(begin);
  ForTasks(count, config_.d_model,
           [&](int64_t i, int) { Norm(norm, x_[begin + i], normed_[i]); });
  return normed_;
}

void Block::CloseSublayer(const NormWeights& norm) {
  if (config_.norm == tarn::Norm::kPre) return;
  ForRows(config_.d_model, [&](int64_t r) { Norm(norm, x_[r], x_[r]); });
}

void Block::Project(const NormWeights& norm, const PackedMatrix& w, Rows to) {
  ForPieces([&](int64_t begin, int64_t count) {
    const Rows in = Input(norm, begin, count);
    PackedMatMul(in.data, in.stride, count, w, {to[begin], to.stride},
                 executor_);
  });
}

void Block::AddAttended(const NormWeights& norm, const PackedMatrix& w) {
  PackedMatMul(attended_.data, attended_.stride, rows(), w,
               {x_.data, x_.stride}, executor_, MatMulFinish::kAdd);
  CloseSublayer(norm);
}

void Block::FeedForward(const LayerWeights& w) {
  const MatMulFinish finish = config_.activation == Activation::kRelu
                                  ? MatMulFinish::kRelu
                                  : MatMulFinish::kGelu;
  ForPieces([&](int64_t begin, int64_t count) {
    const Rows in = Input(w.last_norm(), begin, count);
    PackedMatMul(in.data, in.stride, count, w.linear1,
                 {hidden_.data, hidden_.stride}, executor_, finish);
    PackedMatMul(hidden_.data, hidden_.stride, count, w.linear2,
                 {x_[begin], x_.stride}, executor_, MatMulFinish::kAdd);
  });
  CloseSublayer(w.last_norm());
}

void Block::FinalRow(int64_t row, float* out) const {
  if (config_.final_norm) {
    Norm(weights_.norm, x_[row], out);
  } else {
    std::copy_n(x_[row], config_.d_model, out);
  }
}

void Block::RotateRows() {
  ForRows(key_width_, [&](int64_t row) {
    if (rotated_features_) RotateFeatures(row);
    const float* cos = places_[row];
    // Queries and keys stand side by side: 2 H heads to turn.
    RotateRow(cos, cos + config_.d_key / 2, 2 * config_.n_heads, config_.d_key,
              qkv_[row]);
  });
}

void Block::RotateHead(int64_t row, int64_t head) {
  const int64_t d_key = config_.d_key;
  const float* cos = places_[row];
  float* query = qkv_[row] + head * d_key;
  RotateRow(cos, cos + d_key / 2, 1, d_key, query);
  RotateRow(cos, cos + d_key / 2, 1, d_key, query + key_width_);
}

// phi(q) and phi(k) into features_ and, to be turned, in place of q and k.
void Block::RotateFeatures(int64_t row) {
  float* qk = qkv_[row];
  for (int64_t head = 0; head < 2 * config_.n_heads; ++head) {
    form_.Map(qk + head * config_.d_key, qk + head * config_.d_key);
  }
  if (config_.denominator == Denominator::kExact) {
    for (int64_t head = 0; head < config_.n_heads; ++head) {
      float* q = qk + head * config_.d_key;
      const float scale = PowerOfTwoScale(q, config_.d_key);
      for (int64_t i = 0; i < config_.d_key; ++i) q[i] *= scale;
    }
  }
  std::copy_n(qk, 2 * key_width_, features_[row]);
}

}  // namespace tarn
