#include "runtime/stack/block.h"

#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

// Rows in a piece: enough that the products hide the reading of the weights,
// few enough that the rows in use stay in L2.
constexpr int64_t kMaxRows = 256;
// Scratch of a piece in floats (64 MiB): wide models take smaller pieces.
constexpr int64_t kMaxScratch = int64_t{1} << 24;
// Scratch for more rows is not kept from one call to the next.
constexpr int64_t kKeptRows = 4096;

}  // namespace

Block::Block(const ModelConfig& config, const StackWeights& weights,
             Executor& executor)
    : MixerBlock(executor, positions_, segments_),
      config_(config),
      weights_(weights),
      position_rows_(config) {
  for (const LayerWeights& layer : weights.layers) {
    if (layer.mixer == nullptr) continue;  // see Forward::RunOnly
    in_width_ = std::max(in_width_, layer.mixer->in_width());
    out_width_ = std::max(out_width_, layer.mixer->out_width());
    extra_width_ = std::max(extra_width_, layer.mixer->row_floats());
    passed_width_ = std::max(passed_width_, layer.mixer->passed_width());
    if (layer.feed_forward == nullptr) continue;
    hidden_width_ = std::max(hidden_width_, layer.feed_forward->hidden_width());
    in_width_ = std::max(in_width_, layer.feed_forward->in_width());
  }
  if (config.arch == Arch::kSeq2seq) {  // cross attention
    const int64_t values = config.n_heads * config.d_value;
    in_width_ = std::max(in_width_, 2 * config.n_heads * config.d_key + values);
    out_width_ = std::max(out_width_, values);
  }
  AssignScratch(0);  // measures a row
  piece_rows_ = std::clamp<int64_t>(kMaxScratch / row_floats_, 1, kMaxRows);
  // Lists never grow past a piece, so that steps allocate nothing.
  tokens_.reserve(static_cast<size_t>(piece_rows_));
  positions_.reserve(static_cast<size_t>(piece_rows_));
}

// Lays out the arrays one after another.
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
  take(in, in_width_, rows);
  take(out, out_width_, rows);
  take(hidden_, hidden_width_, piece);
  if (!config_.HasPlainSums()) take(branch_, config_.d_model, piece);
  if (position_rows_.width() > 0) take(places, position_rows_.width(), rows);
  if (extra_width_ > 0) take(extra, extra_width_, rows);
  if (passed_width_ > 0) take(passed, passed_width_, rows);
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
  worker_memory_ = AlignedBuffer<float>(floats * executor_.width());
  worker_scratch_ = worker_memory_.data();
  worker_floats_ = floats;
}

void Block::Shrink() {
  if (scratch_rows_ <= kKeptRows) return;
  scratch_ = AlignedBuffer<float>();
  scratch_rows_ = 0;
  worker_memory_ = AlignedBuffer<float>();
  worker_scratch_ = nullptr;
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
  if (config_.embedding_factor != 1.0) {
    ScaleRow(static_cast<float>(config_.embedding_factor), width, x);
  }
  switch (config_.positions) {
    case Positions::kLearned:  // the model has checked that there is a row
      AddToRow(weights_.positions.data() + positions[row] * d_model, d_model,
               x);
      break;
    case Positions::kSinusoidal:
      if (config_.position_combine == PositionCombine::kConcat) {
        std::copy_n(places[row], d_model - width, x + width);
      } else {
        AddToRow(places[row], d_model, x);
      }
      break;
    case Positions::kRotary:  // rotates queries and keys, layer by layer
    case Positions::kNone:
      break;
  }
}

void Block::EmbedRows() {
  const bool computed = position_rows_.width() > 0;
  if (computed) {
    const auto missing = position_rows_.Claim(positions);
    // Sines and cosines in double: about 20 ns an entry.
    try {
      ForTasks(static_cast<int64_t>(missing.size()),
               20 * position_rows_.width(),
               [&](int64_t i, int) { position_rows_.Fill(missing[i]); });
    } catch (...) {
      position_rows_.Unclaim();
      throw;
    }
  }
  ForRows(2 * config_.d_model, [&](int64_t row) {
    if (computed) position_rows_.Get(positions[row], places[row]);
    Embed(row);
    if (config_.input_norm) Norm(weights_.input_norm, x_[row], x_[row]);
  });
}

void NormRow(const ModelConfig& config, const NormWeights& norm,
             const float* from, float* to) {
  const float eps = static_cast<float>(config.norm_eps);
  switch (config.norm_kind) {
    case NormKind::kLayer:
      LayerNormRow(from, config.d_model, norm.weight.data(), norm.bias.data(),
                   eps, to);
      return;
    case NormKind::kRms:
      RmsNormRow(from, config.d_model, norm.weight.data(), eps, to);
      return;
  }
}

Rows Block::Input(const PartNorms& norms, int64_t begin, int64_t count) {
  if (norms.before.empty()) return x_.From(begin);
  ForTasks(count, config_.d_model, [&](int64_t i, int) {
    Norm(norms.before, x_[begin + i], normed_[i]);
  });
  return normed_;
}

void Block::AddBranch(const PartNorms& norms, int64_t begin, int64_t count) {
  const float factor = static_cast<float>(config_.residual_factor);
  ForTasks(count, 2 * config_.d_model, [&](int64_t i, int) {
    if (!norms.after.empty()) Norm(norms.after, branch_[i], branch_[i]);
    AddScaledRow(branch_[i], factor, config_.d_model, x_[begin + i]);
  });
}

void Block::Close(const PartNorms& norms) {
  if (norms.closing.empty()) return;
  ForRows(config_.d_model,
          [&](int64_t r) { Norm(norms.closing, x_[r], x_[r]); });
}

void Block::CopyRows(Rows from, int64_t count, int64_t width, Rows to) {
  if (width == 0) return;
  ForTasks(count, width,
           [&](int64_t i, int) { std::copy_n(from[i], width, to[i]); });
}

void Block::Project(const PartNorms& norms, const WeightMatrix& w, Rows to) {
  ForPieces([&](int64_t begin, int64_t count) {
    const Rows from = Input(norms, begin, count);
    if (w.outputs() == 0) {
      CopyRows(from, count, config_.d_model, to.From(begin));
      return;
    }
    PackedMatMul(from.data, from.stride, count, w, {to[begin], to.stride},
                 executor_);
  });
}

void Block::AddOut(const PartNorms& norms, const WeightMatrix& w) {
  const bool made = w.outputs() == 0;
  if (config_.HasPlainSums() && made) {
    ForRows(config_.d_model,
            [&](int64_t r) { AddToRow(out[r], config_.d_model, x_[r]); });
  } else if (config_.HasPlainSums()) {
    PackedMatMul(out.data, out.stride, rows(), w, {x_.data, x_.stride},
                 executor_, MatMulFinish::kAdd);
  } else {
    ForPieces([&](int64_t begin, int64_t count) {
      if (made) {
        CopyRows(out.From(begin), count, config_.d_model, branch_);
      } else {
        PackedMatMul(out[begin], out.stride, count, w,
                     {branch_.data, branch_.stride}, executor_);
      }
      AddBranch(norms, begin, count);
    });
  }
  Close(norms);
}

void Block::FeedForward(const LayerWeights& w, int64_t layer) {
  if (w.feed_forward == nullptr) return;
  const PartNorms& norms = w.feed_forward_norms;
  ForPieces([&](int64_t begin, int64_t count) {
    const Rows from = Input(norms, begin, count);
    if (config_.HasPlainSums()) {
      w.feed_forward->Run(*this, {from, x_.From(begin), hidden_, begin, count},
                          layer);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {  // a part adds to its rows
      std::fill_n(branch_[i], config_.d_model, 0.0f);
    }
    w.feed_forward->Run(*this, {from, branch_, hidden_, begin, count}, layer);
    AddBranch(norms, begin, count);
  });
  Close(norms);
}

void Block::ScaleLogits(float* logits) const {
  const double cap = config_.logit_softcap;
  const double factor =
      cap == 0 ? config_.logit_factor : config_.logit_factor / cap;
  const int64_t count = config_.Outputs();
  if (factor != 1.0) ScaleRow(static_cast<float>(factor), count, logits);
  if (cap == 0) return;
  TanhRow(logits, count, logits);
  ScaleRow(static_cast<float>(cap), count, logits);
}

void Block::FinalOf(const float* x, float* out) const {
  if (config_.final_norm) {
    Norm(weights_.norm, x, out);
  } else {
    std::copy_n(x, config_.d_model, out);
  }
}

}  // namespace tarn
