// A model opened for inference, and its state: the cost of a token is constant
// (linear attention) or grows with the tokens before it (softmax, KV cache). A
// language model or the decoder of a sequence-to-sequence model generates token
// by token; the latter's encoder or a classifier reads whole sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/threads/stoppable.h"
#include "importers/model_files.h"
#include "kernels/softmax_attention/cache_type.h"
#include "runtime/model/weight_type.h"
#include "runtime/stack/pooled_rows.h"

namespace tarn {

struct ModelOptions {
  WeightType weights = WeightType::kAuto;
  int threads = 0;  // 0: DefaultThreads()
  bool use_mmap = true;
  /// Products of weights in groups in float32, with the bits of a float32 model
  /// that holds the same numbers. Otherwise inputs are rounded to 8 bits, group
  /// by group, which is faster. No effect on other formats.
  bool exact = false;
  /// How the layers of softmax attention hold keys and values of earlier
  /// tokens, windows and latent rows included; other states are float32. Any
  /// split of a prompt, batch and thread count give the same bits in each type.
  CacheType cache = CacheType::kF32;
};

class Model;
struct Insides;  // of both, for the runtime's own files (impl.h)

/// The past of one sequence as a value: it can be moved and Clone()d. A clone
/// shares memory until it or its source next moves, which copies it; the two
/// may belong to different threads. Linear models: a fixed-size block. Softmax
/// models: a KV cache that grows by doubling. Sequence-to-sequence models: also
/// what Encode() made of the source, which copies share and which never
/// changes. One writer at a time.
class State {
 public:
  /// The initial state, position 0. For a sequence-to-sequence model it has no
  /// source and can only be the target of CopyFrom(). Throws ArgumentError for
  /// a classifier, which has no state.
  explicit State(const Model& model);
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();
  State Clone() const;                // O(1): copied once one of them moves
  void CopyFrom(const State& other);  // same model, else ArgumentError
  void Reset();                       // back to position 0; keeps the source
  int64_t position() const;           // tokens consumed
  /// Bytes of recurrence held: constant for linear models; for softmax models
  /// the cache in its type, with its spare room. The last logits (n_outputs
  /// floats) are not counted, nor is the memory of a source.
  int64_t bytes() const;
  /// Tokens of the source that Encode() read, and bytes of the memory made from
  /// them, shared by all copies; 0 without a source.
  int64_t source_len() const;
  int64_t memory_bytes() const;
  /// Position, recurrence, source and last logits, bit for bit.
  bool operator==(const State& other) const;
  uint64_t Hash() const;
  /// Logits after the last consumed token, kept with the state (empty before
  /// the first token, and after a call that asked for no logits).
  std::span<const float> last_logits() const;

 private:
  friend class Model;
  friend struct Insides;
  struct Impl;
  explicit State(std::unique_ptr<Impl> impl);
  Impl& Get() const;  // throws ArgumentError after a move
  std::unique_ptr<Impl> impl_;
};

/// One sequence's share of a batch call. `logits`: null, or n_outputs() floats
/// for the last token (all_logits false) or tokens.size() rows (true).
/// `pooled`: null, or what the tokens' rows of d_model floats, which the head
/// would read, are added to; kLast takes that of the job's last token.
/// `hidden`: null, or room for those rows themselves, [tokens.size(), d_model].
/// Both are undefined after a call that throws.
struct Job {
  State* state = nullptr;
  std::span<const int32_t> tokens;
  float* logits = nullptr;
  bool all_logits = false;
  PooledRows* pooled = nullptr;
  float* hidden = nullptr;
};

/// Immutable after Open: any number of threads may use it with states of their
/// own (calls share the pool and take turns).
class Model {
 public:
  /// Opens a directory's config.json, model.safetensors and, for a classifier,
  /// labels.json, or a GGUF file. Everything is checked before use; failures
  /// are FormatError or IoError in one line, also for models that this runtime
  /// does not run (supported.h). Throws ArgumentError for options.threads < 0
  /// or more than the system gives, and for options.cache other than kF32 where
  /// no layer of the model has such a cache.
  static Result<Model> Open(const ModelPath& path, const ModelOptions& = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  const ModelOptions& options() const;
  int threads() const;
  int64_t vocab_size() const;
  /// Floats in a row of logits: vocab_size, or the 3 n_mixtures parameters of
  /// an image model's distribution of the next byte (pixels.h).
  int64_t n_outputs() const;
  /// Has memory of a state ready in SpareFloats, where that keeps any: its
  /// first use would otherwise delay a token. Throws std::bad_alloc.
  void PrepareState() const;
  bool has_mtp() const;  // its files hold an extra prediction head (MtpHead)
  int64_t parameters() const;    // count, all tensors
  int64_t weight_bytes() const;  // as held in memory
  /// The formats that hold its matrices, with the numbers in each.
  std::vector<std::pair<const WeightFormat*, int64_t>> weight_formats() const;
  /// Bytes in memory for each weight of the matrices that a step reads, on
  /// average and without padding.
  double bytes_per_weight() const;
  int64_t state_bytes() const;            // of a new state
  int64_t state_bytes_per_token() const;  // 0 for linear models
  /// Bytes of an encoded source that do not depend on its length, and bytes of
  /// one more source token. 0 except for sequence-to-sequence models.
  int64_t memory_bytes() const;
  int64_t memory_bytes_per_token() const;
  /// Tokens that a sequence may have: the rows of a table of learned positions
  /// (max_positions), INT64_MAX for other models.
  int64_t max_tokens() const;
  /// The names of a classifier's classes, [n_classes]; empty for other models.
  const std::vector<std::string>& labels() const;

  /// Consumes tokens (any count, 0 included). The recurrence runs token by
  /// token in one arithmetic, so any split of a prompt, any batch and any
  /// thread count give the same bits in state and logits.
  /// logits: null, or n_outputs floats for the last token (for no tokens:
  /// a copy of last_logits(), which must not be empty).
  /// Throws ArgumentError for a token outside [0, vocab_size), for more tokens
  /// than max_tokens(), those before included, or a state of another model,
  /// with nothing changed. Never throws NumericError: NaN
  /// weights give NaN logits (the sampler refuses them). Allocates nothing once
  /// the model has run a block as large (softmax models: and while the cache
  /// has room, which doubles when it is full).
  /// stop: asked on this thread every 20 ms or so while more than one token
  /// runs; once it returns true the call throws Error of kInterrupted with the
  /// state unchanged and `logits` undefined. It costs a copy of the state's
  /// fixed part. The same holds for the calls below.
  void Prefill(State& state, std::span<const int32_t> tokens,
               float* logits = nullptr, const StopCheck& stop = {}) const;
  /// Logits of every token: [tokens.size(), n_outputs].
  void Score(State& state, std::span<const int32_t> tokens, float* logits,
             const StopCheck& stop = {}) const;
  void Step(State& state, int32_t token, float* logits = nullptr) const;
  /// Runs several sequences at once and reads the weights once for up to 256
  /// tokens; states must be distinct (checked).
  void StepBatch(std::span<Job> jobs, const StopCheck& stop = {}) const;

  /// Sequence-to-sequence models: reads a source (any length, 0 included) and
  /// returns the state before the first target token. Prefill, Step and
  /// StepBatch then run the decoder, whose cross attention reads the source's
  /// keys and values, projected once, here. O(tokens) memory while it runs.
  /// Throws ArgumentError for tokens outside [0, vocab_size), more than
  /// max_tokens() of them, and for models without an encoder and a decoder.
  State Encode(std::span<const int32_t> source,
               const StopCheck& stop = {}) const;
  /// Classifiers: logits [n_classes] of one sequence of at least one token: the
  /// head of the mean of the stack's output. Throws like Encode.
  void Classify(std::span<const int32_t> tokens, float* logits) const;
  /// Several sequences: logits [sequences, n_classes], with the same bits as
  /// one by one; the weights are read once for many sequences.
  void ClassifyBatch(std::span<const std::span<const int32_t>> sequences,
                     float* logits, const StopCheck& stop = {}) const;

 private:
  friend class State;
  friend struct Insides;
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  void CheckOpen() const;
  void CheckTokens(std::span<const int32_t> tokens, int64_t begin) const;
  void CheckArch(const char* call, Arch wanted) const;
  void CheckJob(const Job& job) const;
  void CheckDistinct(std::span<const Job> jobs) const;
  void RunOne(Job job, const StopCheck& stop = {}) const;
  void RunJobs(std::span<Job> jobs, const StopCheck& stop) const;
  void Reserve(std::span<const Job> jobs) const;
  void RunBlocks(std::span<Job> jobs, const StopCheck& stop) const;
  void RequestLogits(const Job& job, int64_t done, int64_t row,
                     int64_t added) const;
  void RequestPooled(const Job& job, int64_t done, int64_t row,
                     int64_t added) const;
  void KeepLogits(const Job& job) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn
