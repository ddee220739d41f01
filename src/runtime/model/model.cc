#include "runtime/model/model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "runtime/model/files.h"
#include "runtime/model/fingerprint.h"
#include "runtime/model/impl.h"
#include "runtime/model/supported.h"
#include "runtime/weights/mtp_weights.h"

namespace tarn {
namespace {

// A model without a cache that may be rounded has one type of state.
void CheckCache(const ModelConfig& config, CacheType cache) {
  if (cache == CacheType::kF32 || StateLayout(config, cache).rounds()) return;
  throw ArgumentError("Model::Open: cache",
                      StrCat(Name(CacheType::kF32),
                             ", as no layer keeps keys and values of softmax "
                             "attention"),
                      Name(cache));
}

}  // namespace

Result<Model> Model::Open(const ModelPath& path, const ModelOptions& options) {
  if (options.threads < 0) {
    throw ArgumentError("Model::Open: threads", "0 (automatic) or more",
                        StrCat(options.threads));
  }
  const Result<ModelConfig> config = ReadModelConfig(path);
  if (!config.ok()) return config.error();
  if (const auto error = CheckSupported(config.value())) {
    return InFolder(path.path(), *error);
  }
  CheckCache(config.value(), options.cache);
  Result<ModelFiles> opened =
      OpenModelFiles(path, config.value(), options.use_mmap);
  if (!opened.ok()) return opened.error();
  ModelFiles files = std::move(opened).Take();
  const WeightPlan plan(config.value(), options.weights.format(),
                        options.exact);
  auto pool = std::make_unique<ThreadPool>(
      options.threads > 0 ? options.threads : DefaultThreads());
  try {
    const WeightFormat& held =
        EmbeddingFormat(*files.weights, config.value(), plan);
    // First: of the pages of the files that it maps, packing releases all.
    const uint64_t files_print =
        ModelFingerprint(*files.weights, config.value(), held);
    Weights weights = PackWeights(*files.weights, config.value(), plan, *pool);
    const uint64_t fingerprint =
        HeldFingerprint(files_print, held, weights.held);
    // Another one, so that the header of a file is not kept in memory.
    const ModelPath again(path.path());
    return Model(std::make_unique<Impl>(
        config.value(), options, std::move(weights), std::move(files.labels),
        fingerprint, std::move(pool), HasMtp(*files.weights), again));
  } catch (const FormatError& error) {  // of numbers, as they are read
    return error;
  }
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelConfig& Model::config() const { return impl_->config; }
const ModelOptions& Model::options() const { return impl_->options; }
int Model::threads() const { return impl_->pool->width(); }
int64_t Model::vocab_size() const { return impl_->config.vocab_size; }
int64_t Model::n_outputs() const { return impl_->config.Outputs(); }
bool Model::has_mtp() const { return impl_->has_mtp; }
int64_t Model::parameters() const { return impl_->weights.parameters; }
int64_t Model::weight_bytes() const { return impl_->weights.bytes; }
std::vector<std::pair<const WeightFormat*, int64_t>> Model::weight_formats()
    const {
  std::map<int, std::pair<const WeightFormat*, int64_t>> by_id;
  for (const HeldTensor& tensor : impl_->weights.held) {
    auto& [format, numbers] = by_id[tensor.format->id];
    format = tensor.format;
    numbers += tensor.numbers;
  }
  std::vector<std::pair<const WeightFormat*, int64_t>> formats;
  for (const auto& [id, format] : by_id) formats.push_back(format);
  return formats;
}
double Model::bytes_per_weight() const {
  return impl_->weights.bytes_per_weight;
}
int64_t Model::state_bytes() const { return impl_->layout->FixedBytes(); }
int64_t Model::state_bytes_per_token() const {
  return impl_->layout->BytesPerToken();
}
int64_t Model::memory_bytes() const {
  return impl_->cross ? impl_->cross->FixedBytes() : 0;
}
int64_t Model::memory_bytes_per_token() const {
  return impl_->cross ? impl_->cross->BytesPerToken() : 0;
}
int64_t Model::max_tokens() const {
  return impl_->config.positions == Positions::kLearned
             ? impl_->config.max_positions
             : INT64_MAX;
}
const std::vector<std::string>& Model::labels() const { return impl_->labels; }

void Model::CheckOpen() const {
  if (impl_ == nullptr) {
    throw ArgumentError("Model", "an open model", "one moved from");
  }
}

// Checks tokens at position `begin` and after it.
void Model::CheckTokens(std::span<const int32_t> tokens, int64_t begin) const {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count > 0 && count > max_tokens() - begin) {
    throw ArgumentError(
        "Model: tokens",
        StrCat("at most ", std::max<int64_t>(0, max_tokens() - begin),
               begin > 0 ? " more" : "", ": the model has ", max_tokens(),
               " learned positions (max_positions)"),
        StrCat(count));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token >= 0 && token < vocab_size()) continue;
    throw ArgumentError(StrCat("Model: tokens[", i, "]"),
                        StrCat("an id in [0, ", vocab_size(), ")"),
                        StrCat(token));
  }
}

void Model::CheckArch(const char* call, Arch wanted) const {
  CheckOpen();
  if (impl_->config.arch == wanted) return;
  throw ArgumentError(StrCat("Model::", call),
                      StrCat("a model of arch '", Name(wanted), "'"),
                      StrCat("arch '", Name(impl_->config.arch), "'"));
}

// Checks everything that can be wrong with a job before anything changes.
void Model::CheckJob(const Job& job) const {
  CheckOpen();
  if (job.state == nullptr || job.state->impl_ == nullptr) {
    throw ArgumentError("Model: state", "a state that holds a sequence",
                        job.state == nullptr ? "null" : "one moved from");
  }
  const SequenceState& state = job.state->impl_->sequence;
  if (&state.layout() != impl_->layout.get()) {
    throw ArgumentError("Model: state", "a state of this model",
                        "one of another model");
  }
  if (state.layout().cross && state.memory == nullptr) {
    throw ArgumentError("Model: state", "one that Encode returned",
                        "a state without a source");
  }
  CheckTokens(job.tokens, state.position);
  if (job.all_logits && job.logits == nullptr && !job.tokens.empty()) {
    throw ArgumentError("Model: logits", "room for the logits of every token",
                        "null");
  }
  if (!job.all_logits && job.logits != nullptr && job.tokens.empty() &&
      !state.has_logits) {
    throw ArgumentError("Model: tokens",
                        "at least one, or a state that has logits",
                        "none, and a state without");
  }
}

// Throws when two jobs have one state. The list stays with the model, so that a
// step allocates nothing.
void Model::CheckDistinct(std::span<const Job> jobs) const {
  if (jobs.size() < 2) return;
  const std::lock_guard lock(impl_->turn);
  std::vector<const SequenceState*>& states = impl_->batch;
  states.clear();
  for (const Job& job : jobs) states.push_back(&job.state->impl_->sequence);
  std::sort(states.begin(), states.end(), std::less<const SequenceState*>());
  if (std::adjacent_find(states.begin(), states.end()) != states.end()) {
    throw ArgumentError("Model::StepBatch: jobs", "distinct states",
                        "the same state twice");
  }
}

// Marks what a stop takes back. One token is over before anybody waits.
void Model::RunJobs(std::span<Job> jobs, const StopCheck& stop) const {
  size_t tokens = 0;
  for (const Job& job : jobs) tokens += job.tokens.size();
  const bool stops = stop && tokens > 1;
  std::vector<StateMark> marks;
  if (stops) {
    marks.reserve(jobs.size());
    for (const Job& job : jobs) {
      marks.push_back(job.state->impl_->sequence.Mark());
    }
  }
  Reserve(jobs);
  if (!stops) {
    RunBlocks(jobs, {});
    return;
  }
  try {
    RunBlocks(jobs, stop);
  } catch (...) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].state->impl_->sequence.Rollback(marks[i]);
    }
    throw;
  }
}

// Makes room for the tokens of the jobs, and copies states that share their
// memory, such as those whose snapshots have just been kept. All workers copy.
void Model::Reserve(std::span<const Job> jobs) const {
  const std::lock_guard lock(impl_->turn);
  FloatCopies& copies = impl_->copies;
  const auto make_copies = [&] {
    if (copies.pieces() < 2) {
      copies.CopyAll();
    } else {
      try {
        impl_->pool->ParallelFor(copies.pieces(),
                                 [&](int64_t i, int) { copies.Copy(i); });
      } catch (const std::exception&) {  // a fork's child may have no workers
        copies.CopyAll();
      }
    }
    copies.Clear();
  };
  try {
    for (const Job& job : jobs) {
      if (job.tokens.empty()) continue;  // changes nothing
      SequenceState& state = job.state->impl_->sequence;
      state.Reserve(state.position + static_cast<int64_t>(job.tokens.size()),
                    copies);
    }
  } catch (...) {
    make_copies();
    throw;
  }
  make_copies();
}

// Runs blocks of as many tokens as fit, taken from the jobs in order. The model
// is locked for one block at a time, so that a long prompt of one thread does
// not keep another's single step waiting for all of it.
void Model::RunBlocks(std::span<Job> jobs, const StopCheck& stop) const {
  for (size_t next = 0, done = 0; next < jobs.size();) {
    const std::lock_guard lock(impl_->turn);
    const StopScope scope(impl_->workers, stop);
    scope.Check();
    Forward& forward = *impl_->forward;
    forward.Clear();
    const size_t first = next;
    while (next < jobs.size() && !forward.full()) {
      const Job& job = jobs[next];
      const int64_t row = forward.rows();
      const int64_t added =
          forward.Add(job.state->impl_->sequence, job.tokens.subspan(done));
      RequestLogits(job, static_cast<int64_t>(done), row, added);
      RequestPooled(job, static_cast<int64_t>(done), row, added);
      if (job.hidden != nullptr && added > 0) {
        forward.WantHidden(
            row, added,
            job.hidden + static_cast<int64_t>(done) * impl_->config.d_model);
      }
      done += static_cast<size_t>(added);
      if (done < job.tokens.size()) break;
      done = 0;
      ++next;
    }
    forward.Run();
    for (size_t i = first; i < next; ++i) KeepLogits(jobs[i]);
  }
}

// Rows [row, row + added) of the block are the job's tokens from `done` on.
void Model::RequestLogits(const Job& job, int64_t done, int64_t row,
                          int64_t added) const {
  if (job.logits == nullptr || added == 0) return;
  if (job.all_logits) {
    for (int64_t i = 0; i < added; ++i) {
      impl_->forward->WantLogits(row + i,
                                 job.logits + (done + i) * n_outputs());
    }
  } else if (done + added == static_cast<int64_t>(job.tokens.size())) {
    impl_->forward->WantLogits(row + added - 1,
                               job.state->impl_->sequence.logits());
  }
}

void Model::RequestPooled(const Job& job, int64_t done, int64_t row,
                          int64_t added) const {
  if (job.pooled == nullptr || added == 0) return;
  if (job.pooled->pooling() == Pooling::kMean) {
    impl_->forward->WantPooled(row, added, job.pooled);
  } else if (done + added == static_cast<int64_t>(job.tokens.size())) {
    impl_->forward->WantPooled(row + added - 1, 1, job.pooled);
  }
}

// Called after a job's last token: the state and the caller get the logits.
void Model::KeepLogits(const Job& job) const {
  SequenceState& state = job.state->impl_->sequence;
  const int64_t count = static_cast<int64_t>(job.tokens.size());
  if (count > 0) state.has_logits = job.logits != nullptr;
  if (job.logits == nullptr) return;
  if (!job.all_logits) {
    std::copy_n(std::as_const(state).logits(), n_outputs(), job.logits);
  } else if (count > 0) {
    std::copy_n(job.logits + (count - 1) * n_outputs(), n_outputs(),
                state.logits());
  }
}

void Model::RunOne(Job job, const StopCheck& stop) const {
  CheckJob(job);
  RunJobs({&job, 1}, stop);
}

void Model::Prefill(State& state, std::span<const int32_t> tokens,
                    float* logits, const StopCheck& stop) const {
  RunOne({&state, tokens, logits, false}, stop);
}

void Model::Score(State& state, std::span<const int32_t> tokens, float* logits,
                  const StopCheck& stop) const {
  RunOne({&state, tokens, logits, true}, stop);
}

void Model::Step(State& state, int32_t token, float* logits) const {
  RunOne({&state, {&token, 1}, logits, false});
}

void Model::StepBatch(std::span<Job> jobs, const StopCheck& stop) const {
  for (const Job& job : jobs) CheckJob(job);
  CheckDistinct(jobs);
  RunJobs(jobs, stop);
}

State Model::Encode(std::span<const int32_t> source,
                    const StopCheck& stop) const {
  CheckArch("Encode", Arch::kSeq2seq);
  CheckTokens(source, 0);
  const auto memory =
      impl_->cross->NewMemory(static_cast<int64_t>(source.size()));
  {
    const std::lock_guard lock(impl_->turn);
    const StopScope scope(impl_->workers, stop);
    scope.Check();
    Encoder& encoder = *impl_->encoder;
    encoder.Clear();
    encoder.Add(source);
    encoder.Run();
    encoder.FillMemory(0, *memory);
  }
  State state(*this);
  state.impl_->sequence.memory = memory;
  return state;
}

void Model::Classify(std::span<const int32_t> tokens, float* logits) const {
  ClassifyBatch({&tokens, 1}, logits);
}

void Model::ClassifyBatch(std::span<const std::span<const int32_t>> sequences,
                          float* logits, const StopCheck& stop) const {
  CheckArch("Classify", Arch::kEncoder);
  for (const auto& tokens : sequences) {
    CheckTokens(tokens, 0);
    if (tokens.empty()) {
      throw ArgumentError("Model::Classify: tokens", "at least one", "none");
    }
  }
  if (!sequences.empty() && logits == nullptr) {
    throw ArgumentError(
        "Model::Classify: logits",
        StrCat("room for ", impl_->config.n_classes, " floats a sequence"),
        "null");
  }
  // Rows that share a pass: the locked time and the scratch stay bounded.
  constexpr int64_t kRows = 1024;
  for (size_t next = 0; next < sequences.size();) {
    const std::lock_guard lock(impl_->turn);
    const StopScope scope(impl_->workers, stop);
    scope.Check();
    Encoder& encoder = *impl_->encoder;
    encoder.Clear();
    const size_t first = next;
    do {
      encoder.Add(sequences[next++]);
    } while (next < sequences.size() && encoder.rows() < kRows);
    encoder.Run();
    for (size_t i = first; i < next; ++i) {
      encoder.Classify(
          static_cast<int64_t>(i - first),
          logits + static_cast<int64_t>(i) * impl_->config.n_classes);
    }
  }
}

}  // namespace tarn
