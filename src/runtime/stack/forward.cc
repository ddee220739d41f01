#include "runtime/stack/forward.h"

#include <algorithm>

namespace tarn {

Forward::Forward(const ModelConfig& config, const Weights& weights,
                 const Cross* cross, Executor& executor)
    : Block(config, weights.decoder, executor),
      all_(weights),
      team_(executor),
      cross_(cross) {
  // Lists never grow past a block, so that steps allocate nothing.
  const size_t most = static_cast<size_t>(piece_rows_);
  head_rows_.reserve(most);
  segments_.reserve(most);
  head_out_.reserve(most);
  pools_.reserve(most);
  hidden_rows_.reserve(most);
  PlanStep();
}

void Forward::Clear() {
  ClearRows();
  segments_.clear();
  head_rows_.clear();
  head_out_.clear();
  pools_.clear();
  hidden_rows_.clear();
}

int64_t Forward::Add(SequenceState& state, std::span<const int32_t> tokens) {
  const int64_t count = std::min<int64_t>(static_cast<int64_t>(tokens.size()),
                                          piece_rows_ - rows());
  if (count == 0) return 0;
  segments_.push_back({&state, rows(), count});
  AddRows(tokens.first(static_cast<size_t>(count)), state.position);
  return count;
}

void Forward::WantLogits(int64_t row, float* out) {
  head_rows_.push_back(row);
  head_out_.push_back(out);
}

void Forward::WantPooled(int64_t row, int64_t count, PooledRows* to) {
  pools_.push_back({row, count, to});
}

void Forward::WantHidden(int64_t row, int64_t count, float* out) {
  hidden_rows_.push_back({row, count, out});
}

// Does everything that allocates, before anything changes.
void Forward::Prepare() {
  GrowScratch(piece_rows_);
  int64_t wanted = 0;
  if (cross_ != nullptr) wanted = cross_->ReadFloats(*this);
  for (const LayerWeights& layer : weights_.layers) {
    if (layer.mixer == nullptr) continue;
    wanted = std::max(wanted, layer.mixer->WorkerFloats(*this));
  }
  GrowWorkerScratch(wanted);
}

// The decoder of a sequence-to-sequence model reads its memory between the
// other two parts.
void Forward::RunLayer(int64_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  Project(w.mixer_norms, w.mixer->in(), in);
  // What the mixer reads is in `in`, so that x may already take a sum.
  if (config_.parallel_residual) FeedForward(w, layer);
  w.mixer->Mix(*this, layer);
  AddOut(w.mixer_norms, w.mixer->out());
  if (cross_ != nullptr) {
    Project(w.cross_norms, w.cross.query, in);
    cross_->Read(*this, layer);
    AddOut(w.cross_norms, w.cross.out);
  }
  if (!config_.parallel_residual) FeedForward(w, layer);
}

// Computes logits for the rows that were asked for, and no others. The rows are
// gathered first, so that the head's weights are read once.
void Forward::RunHead() {
  const int64_t wanted = static_cast<int64_t>(head_rows_.size());
  if (wanted == 0) return;
  ForTasks(wanted, config_.d_model, [&](int64_t i, int) {
    FinalRow(head_rows_[static_cast<size_t>(i)], normed_[i]);
  });
  PackedMatMul(normed_.data, normed_.stride, wanted, all_.Head(config_),
               {.rows = head_out_.data()}, executor_);
}

// A block has no more rows than a piece, so that `normed_` has room for all.
void Forward::PoolRows() {
  for (const Pool& pool : pools_) {
    ForTasks(pool.count, config_.d_model,
             [&](int64_t i, int) { FinalRow(pool.row + i, normed_[i]); });
    for (int64_t i = 0; i < pool.count; ++i) pool.to->Add(normed_[i]);
  }
}

void Forward::CopyHidden() {
  for (const Hidden& wanted : hidden_rows_) {
    ForTasks(wanted.count, config_.d_model, [&](int64_t i, int) {
      FinalRow(wanted.row + i, wanted.to + i * config_.d_model);
    });
  }
}

void Forward::Embed(Rows x) {
  if (rows() == 0) return;
  Prepare();
  EmbedRows();
  CopyRows(x_, rows(), config_.d_model, x);
}

void Forward::RunOnly(int64_t layer, Rows x, Rows handed) {
  if (rows() == 0) return;
  Prepare();
  EmbedRows();  // for the positions
  CopyRows(x, rows(), config_.d_model, x_);
  CopyRows(handed, rows(), passed_width_, passed);
  RunLayer(layer);
  CopyRows(x_, rows(), config_.d_model, x);
  CopyRows(passed, rows(), passed_width_, handed);
  for (const Segment& s : segments) s.state->position += s.count;
}

void Forward::Run() {
  if (rows() == 0) return;
  Prepare();
  EmbedRows();
  RunAll();
}

void Forward::RunFrom(Rows x) {
  if (rows() == 0) return;
  Prepare();
  EmbedRows();  // for the positions
  CopyRows(x, rows(), config_.d_model, x_);
  RunAll();
}

void Forward::RunAll() {
  if (StepsAsTeam()) {
    RunStep();
  } else {
    const int64_t layers = static_cast<int64_t>(weights_.layers.size());
    for (int64_t layer = 0; layer < layers; ++layer) RunLayer(layer);
    PoolRows();
    CopyHidden();
    RunHead();
  }
  for (float* logits : head_out_) ScaleLogits(logits);
  for (const Segment& s : segments) s.state->position += s.count;
}

}  // namespace tarn
