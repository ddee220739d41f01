#include "runtime/generate/embed.h"

#include <algorithm>
#include <utility>

namespace tarn {
namespace {

// Texts that are open at one time: as many as fill a block, where their states
// fit.
constexpr int64_t kMostOpenTexts = 256;
constexpr int64_t kMostOpenBytes = int64_t{256} << 20;
// Tokens in a call of the model: one block of rows.
constexpr int64_t kEmbedTokens = 256;

int64_t MostOpen(const Model& model) {
  return std::clamp<int64_t>(
      kMostOpenBytes / std::max<int64_t>(model.state_bytes(), 1), 1,
      kMostOpenTexts);
}

void CheckText(const Model& model, size_t index,
               const std::vector<int32_t>& text) {
  const std::string where = StrCat("texts[", index, "]");
  if (text.empty()) throw ArgumentError(where, "at least one token", "none");
  if (static_cast<int64_t>(text.size()) > model.max_tokens()) {
    throw ArgumentError(where,
                        StrCat("at most ", model.max_tokens(), " tokens"),
                        StrCat(text.size()));
  }
  for (const int32_t token : text) {
    if (token >= 0 && token < model.vocab_size()) continue;
    throw ArgumentError(where, StrCat("ids in [0, ", model.vocab_size(), ")"),
                        StrCat(token));
  }
}

}  // namespace

void CheckTexts(const Model& model,
                const std::vector<std::vector<int32_t>>& texts) {
  if (model.config().arch != Arch::kDecoder) {
    throw ArgumentError("model", "one of arch 'decoder'",
                        StrCat("arch '", Name(model.config().arch), "'"));
  }
  for (size_t i = 0; i < texts.size(); ++i) CheckText(model, i, texts[i]);
}

struct Embedder::Open {
  Open(const Model& model, Pooling pooling)
      : state(model), rows(pooling, model.config().d_model) {}
  State state;
  PooledRows rows;
  size_t text = 0;
  size_t consumed = 0, asked = 0;  // tokens; asked: of a job that runs
};

Embedder::Embedder(const Model& model, std::vector<std::vector<int32_t>> texts,
                   Pooling pooling)
    : model_(model), texts_(std::move(texts)), pooling_(pooling) {
  CheckTexts(model, texts_);
  for (const auto& text : texts_) tokens_ += static_cast<int64_t>(text.size());
  vectors_.resize(texts_.size() * static_cast<size_t>(model.config().d_model));
}

Embedder::~Embedder() = default;

std::unique_ptr<Embedder::Open> Embedder::Begin(size_t text) {
  std::unique_ptr<Open> open;
  if (spare_.empty()) {
    open = std::make_unique<Open>(model_, pooling_);
  } else {
    open = std::move(spare_.back());
    spare_.pop_back();
    open->state.Reset();
    open->rows.Clear();
    open->consumed = 0;
  }
  open->text = text;
  return open;
}

int64_t Embedder::AddJobs(int64_t most, std::vector<Job>& jobs) {
  int64_t tokens = 0;
  const auto add = [&](Open& open) {
    const auto left =
        std::span<const int32_t>(texts_[open.text]).subspan(open.consumed);
    open.asked = std::min(left.size(), static_cast<size_t>(most - tokens));
    jobs.push_back({.state = &open.state,
                    .tokens = left.first(open.asked),
                    .pooled = &open.rows});
    tokens += static_cast<int64_t>(open.asked);
  };
  for (const auto& open : open_) {
    if (tokens < most) add(*open);
  }
  const auto room = static_cast<size_t>(MostOpen(model_));
  while (tokens < most && next_ < texts_.size() && open_.size() < room) {
    open_.push_back(Begin(next_++));
    add(*open_.back());
  }
  return tokens;
}

void Embedder::JobsDone() {
  const auto width = static_cast<size_t>(model_.config().d_model);
  for (auto& open : open_) {
    open->consumed += std::exchange(open->asked, 0);
    if (open->consumed < texts_[open->text].size()) continue;
    open->rows.Write(vectors_.data() + open->text * width);
    spare_.push_back(std::move(open));
  }
  std::erase(open_, nullptr);
}

std::vector<float> EmbedTexts(const Model& model,
                              std::vector<std::vector<int32_t>> texts,
                              Pooling pooling, const StopCheck& stop) {
  Embedder embedder(model, std::move(texts), pooling);
  std::vector<Job> jobs;
  while (!embedder.done()) {
    jobs.clear();
    embedder.AddJobs(kEmbedTokens, jobs);
    model.StepBatch(jobs, stop);
    embedder.JobsDone();
  }
  return embedder.vectors();
}

}  // namespace tarn
