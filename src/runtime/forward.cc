#include "runtime/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"
#include "kernels/layer_norm/layer_norm.h"

namespace tarn {
namespace {

// Rows in a block: enough that reading the weights hides behind the products,
// few enough that the rows in use stay in L2.
constexpr int64_t kMaxRows = 256;
// Scratch of a block in floats (64 MiB): wide models take smaller blocks.
constexpr int64_t kMaxScratch = int64_t{1} << 24;

// One vector beyond the width: rows 4096 bytes apart would share L1 sets.
int64_t Stride(int64_t width) { return (width + 15) / 16 * 16 + 16; }

}  // namespace

Forward::Forward(const ModelConfig& config, const Weights& weights,
                 Executor& executor)
    : config_(config),
      weights_(weights),
      executor_(executor),
      key_width_(config.n_heads * config.d_key),
      value_width_(config.n_heads * config.d_value),
      rotated_features_(config.attention == AttentionKind::kLinear &&
                        config.positions == Positions::kRotary &&
                        config.rotary_place == RotaryPlace::kAfter),
      position_rows_(config) {
  AssignScratch(0);  // measures a row
  max_rows_ = std::clamp<int64_t>(kMaxScratch / row_floats_, 1, kMaxRows);
  // Lists never grow past a block, so that steps allocate nothing.
  for (auto* list : {&positions_, &head_rows_}) {
    list->reserve(max_rows_);
  }
  tokens_.reserve(max_rows_);
  segments_.reserve(max_rows_);
  head_out_.reserve(max_rows_);
}

// Lays the arrays of a block one behind the other.
void Forward::AssignScratch(int64_t rows) {
  if (rows > 0) scratch_ = AlignedBuffer<float>(rows * row_floats_);
  float* next = scratch_.data();
  int64_t floats = 0;
  const auto take = [&](Rows& array, int64_t width) {
    array.stride = Stride(width);
    array.data = next;
    if (rows > 0) next += rows * array.stride;
    floats += array.stride;
  };
  for (Rows* array : {&x_, &normed_}) take(*array, config_.d_model);
  take(qkv_, 2 * key_width_ + value_width_);
  take(attended_, value_width_);
  take(hidden_, config_.d_ff);
  if (position_rows_.width() > 0) take(places_, position_rows_.width());
  if (rotated_features_) {
    take(features_, 2 * key_width_);
    take(denominators_, config_.n_heads);
  }
  row_floats_ = floats;
  scratch_rows_ = rows;
}

void Forward::Clear() {
  tokens_.clear();
  positions_.clear();
  segments_.clear();
  head_rows_.clear();
  head_out_.clear();
}

int64_t Forward::Add(SequenceState& state, std::span<const int32_t> tokens) {
  const int64_t count = std::min<int64_t>(static_cast<int64_t>(tokens.size()),
                                          max_rows_ - rows());
  if (count == 0) return 0;
  segments_.push_back({&state, rows(), count});
  for (int64_t i = 0; i < count; ++i) {
    tokens_.push_back(tokens[i]);
    positions_.push_back(state.position + i);
  }
  return count;
}

void Forward::WantLogits(int64_t row, float* out) {
  head_rows_.push_back(row);
  head_out_.push_back(out);
}

// Everything that allocates, before anything changes.
void Forward::Prepare() {
  if (rows() > scratch_rows_) {
    AssignScratch(std::min(max_rows_, std::max(rows(), 2 * scratch_rows_)));
  }
  int64_t wanted = rotated_features_ ? Stride(config_.d_key) : 0;
  if (config_.attention == AttentionKind::kFull) {
    for (const Segment& s : segments_) {
      // Grows when the cache does, not from token to token.
      wanted = std::max(wanted, Stride(s.state->capacity()));
    }
  }
  if (wanted > worker_floats_) {
    wanted = std::max(wanted, 2 * worker_floats_);
    worker_scratch_ = AlignedBuffer<float>(wanted * executor_.width());
    worker_floats_ = wanted;
  }
}

void Forward::Multiply(Rows x, const PackedMatrix& w, Rows y,
                       MatMulFinish finish) {
  PackedMatMul(x.data, x.stride, rows(), w, {y.data, y.stride}, executor_,
               finish);
}

// x = embedding (+ or | position), Vaswani et al. 2017, section 3.4-3.5.
void Forward::Embed(int64_t row) {
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

void Forward::EmbedRows() {
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

// Pre-norm:  x1 = x + Att(LN1(x));  y = x1 + FFN(LN2(x1)).
// Post-norm: x1 = LN1(x + Att(x));  y = LN2(x1 + FFN(x1)).
void Forward::RunLayer(int64_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const int64_t d_model = config_.d_model;
  const bool pre = config_.norm == Norm::kPre;
  const float eps = static_cast<float>(config_.norm_eps);
  const auto norm = [&](const NormWeights& n, const float* from, float* to) {
    LayerNormRow(from, d_model, n.weight.data(), n.bias.data(), eps, to);
  };
  if (pre) {
    ForRows(d_model, [&](int64_t r) { norm(w.norm1, x_[r], normed_[r]); });
  }
  Multiply(pre ? normed_ : x_, w.qkv, qkv_);
  Attend(layer);
  Multiply(attended_, w.out, x_, MatMulFinish::kAdd);
  ForRows(d_model, [&](int64_t r) {
    norm(pre ? w.norm2 : w.norm1, x_[r], pre ? normed_[r] : x_[r]);
  });
  Multiply(pre ? normed_ : x_, w.linear1, hidden_,
           config_.activation == Activation::kRelu ? MatMulFinish::kRelu
                                                   : MatMulFinish::kGelu);
  Multiply(hidden_, w.linear2, x_, MatMulFinish::kAdd);
  if (!pre) {
    ForRows(d_model, [&](int64_t r) { norm(w.norm2, x_[r], x_[r]); });
  }
}

// Logits of the rows somebody asked for, and of no others. The rows are
// gathered first, so that the head's weights pass by once.
void Forward::RunHead() {
  const int64_t wanted = static_cast<int64_t>(head_rows_.size());
  if (wanted == 0) return;
  const int64_t d_model = config_.d_model;
  ForTasks(wanted, d_model, [&](int64_t i, int) {
    const float* x = x_[head_rows_[i]];
    if (config_.final_norm) {
      LayerNormRow(x, d_model, weights_.norm.weight.data(),
                   weights_.norm.bias.data(),
                   static_cast<float>(config_.norm_eps), normed_[i]);
    } else {
      std::copy_n(x, d_model, normed_[i]);
    }
  });
  PackedMatMul(normed_.data, normed_.stride, wanted, weights_.Head(config_),
               {.rows = head_out_.data()}, executor_);
}

void Forward::Run() {
  if (rows() == 0) return;
  Prepare();
  EmbedRows();
  for (int64_t layer = 0; layer < config_.n_layers; ++layer) RunLayer(layer);
  RunHead();
  for (const Segment& s : segments_) s.state->position += s.count;
}

}  // namespace tarn
