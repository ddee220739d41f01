// Texts as vectors: several at once, a few tokens of them at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/model/model.h"

namespace tarn {

/// Throws ArgumentError for models that have no causal decoder, and for texts
/// without tokens, with tokens outside [0, vocab_size) or with more of them
/// than the model has positions. O(tokens).
void CheckTexts(const Model& model,
                const std::vector<std::vector<int32_t>>& texts);

/// Texts on their way to their vectors, as jobs that the owner runs: a loop
/// such as EmbedTexts, or a scheduler between other sequences. Refers to the
/// model. One thread at a time. No bit of a vector depends on how the jobs are
/// cut or on what runs with them. Memory: a state for each text that has begun,
/// at most 256 or 256 MiB of new states, and a row for each.
class Embedder {
 public:
  /// Throws as CheckTexts.
  Embedder(const Model& model, std::vector<std::vector<int32_t>> texts,
           Pooling pooling);
  ~Embedder();

  /// Appends the next jobs, of at most `most` tokens in all (1 or more);
  /// returns how many tokens they have. JobsDone must follow once they have
  /// run.
  int64_t AddJobs(int64_t most, std::vector<Job>& jobs);
  /// The jobs have run. Throws NumericError for a text whose vector is not
  /// finite.
  void JobsDone();
  bool done() const { return next_ == texts_.size() && open_.empty(); }

  int64_t texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t tokens() const { return tokens_; }  // of all texts
  /// [texts, d_model], each of length 1; of those that are done.
  const std::vector<float>& vectors() const { return vectors_; }

 private:
  struct Open;
  std::unique_ptr<Open> Begin(size_t text);

  const Model& model_;
  const std::vector<std::vector<int32_t>> texts_;
  const Pooling pooling_;
  int64_t tokens_ = 0;
  size_t next_ = 0;                           // text to begin
  std::vector<std::unique_ptr<Open>> open_;   // that have begun
  std::vector<std::unique_ptr<Open>> spare_;  // whose memory is used again
  std::vector<float> vectors_;
};

/// All of it: [texts, d_model]. Throws as Embedder and JobsDone, and Error of
/// kInterrupted once `stop` says so.
std::vector<float> EmbedTexts(const Model& model,
                              std::vector<std::vector<int32_t>> texts,
                              Pooling pooling, const StopCheck& stop = {});

}  // namespace tarn
