// The C interface over the runtime. Every entry point that can fail runs inside
// Guard(): no exception crosses the boundary.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "runtime/generate/beam.h"
#include "runtime/model/model.h"
#include "runtime/generate/sampler.h"
#include "runtime/state/state_file.h"
#include "text/tokenizer.h"
#include "tarn/tarn.h"

struct tarn_error {
  tarn_status code;
  std::string message;
};

// Counted, so that a state may outlive the caller's hold on its model.
struct tarn_model {
  tarn::Model model;
  tarn::Tokenizer tokenizer;
  mutable std::atomic<int64_t> holders{1};
};

struct tarn_state {
  const tarn_model* model;
  tarn::State state;
};

namespace {

using tarn::ArgumentError;
using tarn::StrCat;

tarn_status Store(tarn_error** error, tarn_status code, const char* message) {
  if (error == nullptr) return code;
  try {
    *error = new tarn_error{code, message};
  } catch (...) {  // no memory for it: the status alone must do
  }
  return code;
}

// Runs the body; turns whatever it throws into a status and an error object.
template <typename Body>
tarn_status Guard(tarn_error** error, Body body) {
  if (error != nullptr) *error = nullptr;
  try {
    body();
    return TARN_OK;
  } catch (const tarn::Error& e) {
    return Store(error, static_cast<tarn_status>(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return Store(error, TARN_ERROR_INTERNAL, "out of memory");
  } catch (const std::exception& e) {
    return Store(error, TARN_ERROR_INTERNAL, e.what());
  } catch (...) {
    return Store(error, TARN_ERROR_INTERNAL, "unknown failure");
  }
}

void Require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw ArgumentError(name, "a pointer", "NULL");
}

// Options as this version knows them, from a caller that may know fewer fields
// (the rest keep their defaults) or more (which must then be zero).
template <typename Options>
Options ReadOptions(const Options* given, const Options& defaults,
                    const char* name) {
  if (given == nullptr) return defaults;
  const size_t size = given->struct_size;
  constexpr size_t kLargest = 4096;  // a garbage size must not be followed
  if (size < sizeof(size_t) || size > kLargest) {
    throw ArgumentError(StrCat(name, ".struct_size"),
                        StrCat(sizeof(size_t), " to ", kLargest), StrCat(size));
  }
  Options options = defaults;
  std::memcpy(&options, given, std::min(size, sizeof(Options)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      throw ArgumentError(name, "zero in fields this version does not know",
                          StrCat("byte ", i, " set"));
    }
  }
  return options;
}

void Hold(const tarn_model* model) { model->holders.fetch_add(1); }

void Release(const tarn_model* model) {
  if (model->holders.fetch_sub(1) == 1) delete model;
}

// The state's own model: a call must not mix models.
void RequireModelOf(const tarn_model* model, const tarn_state* state) {
  Require(model, "model");
  Require(state, "state");
  if (state->model != model) {
    throw ArgumentError("state", "a state of this model",
                        "a state of another model");
  }
}

std::span<const int32_t> Tokens(const int32_t* tokens, uint64_t count) {
  if (count == 0) return {};
  Require(tokens, "tokens");
  constexpr uint64_t kMost = PTRDIFF_MAX / sizeof(int32_t);
  if (count > kMost) {
    throw ArgumentError("count", StrCat("at most ", kMost), StrCat(count));
  }
  return {tokens, static_cast<size_t>(count)};
}

// Copies what a call produced to the caller, or says that it has no room.
template <typename T>
void CopyOut(const T* from, size_t size, T* to, uint64_t capacity,
             uint64_t* count) {
  *count = size;
  if (to == nullptr) return;
  if (capacity < size) {
    throw tarn::ShapeError("capacity", StrCat("at least ", size),
                           StrCat(capacity));
  }
  std::copy(from, from + size, to);
}

tarn::ModelOptions ModelOptionsOf(const tarn_model_options* given) {
  const tarn_model_options c =
      ReadOptions(given, tarn_model_options TARN_MODEL_OPTIONS_INIT, "options");
  if (c.weights != TARN_WEIGHTS_F32 && c.weights != TARN_WEIGHTS_BF16) {
    throw ArgumentError("options.weights", "0 (f32) or 1 (bf16)",
                        StrCat(c.weights));
  }
  if (c.threads < 0 || c.threads > 1024) {
    throw ArgumentError("options.threads", "0 to 1024", StrCat(c.threads));
  }
  tarn::ModelOptions options;
  options.weights = c.weights == TARN_WEIGHTS_BF16 ? tarn::WeightType::kBF16
                                                   : tarn::WeightType::kF32;
  options.threads = c.threads;
  options.use_mmap = c.use_mmap != 0;
  return options;
}

}  // namespace

const char* tarn_version(void) { return TARN_VERSION; }

tarn_status tarn_error_code(const tarn_error* error) {
  return error == nullptr ? TARN_OK : error->code;
}

const char* tarn_error_message(const tarn_error* error) {
  return error == nullptr ? "no details" : error->message.c_str();
}

void tarn_error_free(tarn_error* error) { delete error; }

tarn_status tarn_model_open(const char* path, const tarn_model_options* options,
                            tarn_model** model, tarn_error** error) {
  return Guard(error, [&] {
    Require(path, "path");
    Require(model, "model");
    tarn::Model opened =
        tarn::Model::Open(path, ModelOptionsOf(options)).Take();
    tarn::Tokenizer tokenizer =
        tarn::Tokenizer::Open(path, opened.config()).Take();
    *model = new tarn_model{std::move(opened), std::move(tokenizer)};
  });
}

void tarn_model_close(tarn_model* model) {
  if (model != nullptr) Release(model);
}

uint64_t tarn_model_vocab_size(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.vocab_size());
}

uint64_t tarn_model_n_outputs(const tarn_model* model) {
  return model == nullptr ? 0 : static_cast<uint64_t>(model->model.n_outputs());
}

uint64_t tarn_model_tokenizer_size(const tarn_model* model) {
  return model == nullptr
             ? 0
             : static_cast<uint64_t>(model->tokenizer.vocab_size());
}

uint64_t tarn_model_parameters(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.parameters());
}

int32_t tarn_model_threads(const tarn_model* model) {
  return model == nullptr ? 0 : model->model.threads();
}

uint64_t tarn_model_state_bytes(const tarn_model* model) {
  return model == nullptr ? 0
                          : static_cast<uint64_t>(model->model.state_bytes());
}

uint64_t tarn_model_state_bytes_per_token(const tarn_model* model) {
  return model == nullptr
             ? 0
             : static_cast<uint64_t>(model->model.state_bytes_per_token());
}

int32_t tarn_model_arch(const tarn_model* model) {
  if (model == nullptr) return TARN_ARCH_DECODER;
  switch (model->model.config().arch) {
    case tarn::Arch::kEncoder:
      return TARN_ARCH_ENCODER;
    case tarn::Arch::kSeq2seq:
      return TARN_ARCH_SEQ2SEQ;
    default:
      return TARN_ARCH_DECODER;
  }
}

uint64_t tarn_model_n_classes(const tarn_model* model) {
  return model == nullptr ? 0 : model->model.labels().size();
}

const char* tarn_model_label(const tarn_model* model, uint64_t index) {
  if (index >= tarn_model_n_classes(model)) return nullptr;
  return model->model.labels()[index].c_str();
}

tarn_status tarn_state_new(const tarn_model* model, tarn_state** state,
                           tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(state, "state");
    *state = new tarn_state{model, tarn::State(model->model)};
    Hold(model);
  });
}

tarn_status tarn_state_clone(const tarn_state* state, tarn_state** clone,
                             tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    Require(clone, "clone");
    *clone = new tarn_state{state->model, state->state.Clone()};
    Hold(state->model);
  });
}

tarn_status tarn_state_copy(tarn_state* to, const tarn_state* from,
                            tarn_error** error) {
  return Guard(error, [&] {
    Require(to, "to");
    Require(from, "from");
    if (to == from) return;
    RequireModelOf(from->model, to);
    to->state.CopyFrom(from->state);
  });
}

tarn_status tarn_state_reset(tarn_state* state, tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    state->state.Reset();
  });
}

tarn_status tarn_state_save(const tarn_state* state, const char* path,
                            tarn_error** error) {
  return Guard(error, [&] {
    Require(state, "state");
    Require(path, "path");
    tarn::SaveState(state->model->model, state->state, path);
  });
}

tarn_status tarn_state_load(const tarn_model* model, const char* path,
                            tarn_state** state, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(path, "path");
    Require(state, "state");
    *state = new tarn_state{model, tarn::LoadState(model->model, path).Take()};
    Hold(model);
  });
}

void tarn_state_free(tarn_state* state) {
  if (state == nullptr) return;
  const tarn_model* model = state->model;
  delete state;
  Release(model);
}

uint64_t tarn_state_bytes(const tarn_state* state) {
  return state == nullptr ? 0 : static_cast<uint64_t>(state->state.bytes());
}

uint64_t tarn_state_position(const tarn_state* state) {
  return state == nullptr ? 0 : static_cast<uint64_t>(state->state.position());
}

uint64_t tarn_state_memory_bytes(const tarn_state* state) {
  return state == nullptr ? 0
                          : static_cast<uint64_t>(state->state.memory_bytes());
}

int32_t tarn_state_equal(const tarn_state* a, const tarn_state* b) {
  if (a == nullptr || b == nullptr || a->model != b->model) return 0;
  return a->state == b->state ? 1 : 0;
}

uint64_t tarn_state_hash(const tarn_state* state) {
  return state == nullptr ? 0 : state->state.Hash();
}

const float* tarn_state_last_logits(const tarn_state* state, uint64_t* count) {
  std::span<const float> logits;
  if (state != nullptr) logits = state->state.last_logits();
  if (count != nullptr) *count = logits.size();
  return logits.empty() ? nullptr : logits.data();
}

tarn_status tarn_prefill(const tarn_model* model, tarn_state* state,
                         const int32_t* tokens, uint64_t count, float* logits,
                         tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    model->model.Prefill(state->state, Tokens(tokens, count), logits);
  });
}

tarn_status tarn_step(const tarn_model* model, tarn_state* state, int32_t token,
                      float* logits, tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    model->model.Step(state->state, token, logits);
  });
}

tarn_status tarn_step_batch(const tarn_model* model, const tarn_job* jobs,
                            uint64_t count, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    if (count == 0) return;
    Require(jobs, "jobs");
    std::vector<tarn::Job> batch;
    for (uint64_t i = 0; i < count; ++i) {
      RequireModelOf(model, jobs[i].state);
      batch.push_back({&jobs[i].state->state,
                       Tokens(jobs[i].tokens, jobs[i].count), jobs[i].logits,
                       jobs[i].all_logits != 0});
    }
    model->model.StepBatch(batch);
  });
}

tarn_status tarn_encode_source(const tarn_model* model, const int32_t* tokens,
                               uint64_t count, tarn_state** state,
                               tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(state, "state");
    *state = new tarn_state{model, model->model.Encode(Tokens(tokens, count))};
    Hold(model);
  });
}

tarn_status tarn_classify(const tarn_model* model, const int32_t* tokens,
                          uint64_t count, float* logits, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(logits, "logits");
    model->model.Classify(Tokens(tokens, count), logits);
  });
}

tarn_status tarn_beam_search(const tarn_model* model, const tarn_state* state,
                             const tarn_beam_options* options, int32_t* tokens,
                             uint64_t capacity, uint64_t* count, double* score,
                             tarn_error** error) {
  return Guard(error, [&] {
    RequireModelOf(model, state);
    Require(count, "count");
    const tarn_beam_options c = ReadOptions(
        options, tarn_beam_options TARN_BEAM_OPTIONS_INIT, "options");
    const auto size = [](uint64_t value) {
      return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
    };
    tarn::BeamOptions beam;
    beam.beam = size(c.beam);
    beam.max_tokens = size(c.max_tokens);
    beam.length_penalty = c.length_penalty;
    beam.start = c.start;
    beam.end = c.end;
    beam.candidates = model->tokenizer.vocab_size();
    const auto found =
        tarn::BeamSearch(model->model, {&state->state, 1}, beam)[0];
    const tarn::Hypothesis best =
        found.empty() ? tarn::Hypothesis{} : found.front();
    CopyOut(best.tokens.data(), best.tokens.size(), tokens, capacity, count);
    if (score != nullptr) *score = best.score;
  });
}

tarn_status tarn_encode(const tarn_model* model, const char* text,
                        uint64_t bytes, int32_t* tokens, uint64_t capacity,
                        uint64_t* count, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(count, "count");
    if (bytes > 0) Require(text, "text");
    if (bytes > PTRDIFF_MAX) {
      throw ArgumentError("bytes", StrCat("at most ", PTRDIFF_MAX),
                          StrCat(bytes));
    }
    const std::vector<int32_t> ids =
        model->tokenizer.Encode({text, static_cast<size_t>(bytes)}).Take();
    CopyOut(ids.data(), ids.size(), tokens, capacity, count);
  });
}

tarn_status tarn_decode(const tarn_model* model, const int32_t* tokens,
                        uint64_t count, char* text, uint64_t capacity,
                        uint64_t* bytes, tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(bytes, "bytes");
    std::string out;
    for (const int32_t token : Tokens(tokens, count)) {
      model->tokenizer.Decode(token, out);
    }
    CopyOut(out.data(), out.size(), text, capacity, bytes);
  });
}

tarn_status tarn_sample(const float* logits, uint64_t count,
                        const tarn_sampler_options* options, uint64_t position,
                        int32_t* token, tarn_error** error) {
  return Guard(error, [&] {
    Require(logits, "logits");
    Require(token, "token");
    const tarn_sampler_options c = ReadOptions(
        options, tarn_sampler_options TARN_SAMPLER_OPTIONS_INIT, "options");
    const tarn::SamplerOptions sampler{c.temperature, c.top_k, c.top_p,
                                       c.min_p,       c.seed,  c.stream};
    if (count > INT32_MAX) {
      throw tarn::ShapeError("count", StrCat("at most ", INT32_MAX),
                             StrCat(count));
    }
    *token =
        tarn::Sample({logits, static_cast<size_t>(count)}, sampler, position);
  });
}
