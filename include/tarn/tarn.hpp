// libtarn for C++17: owning classes over the C interface, header only. Objects
// free what they hold, errors are exceptions; see tarn.h for each call's rules.
// The names are in namespace tarn; an inline namespace keeps their symbols
// apart from those of the library, which has classes of the same names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tarn/tarn.h"

namespace tarn {
inline namespace api {

/// A failed call: its status and one line that says what was wrong.
class Error : public std::runtime_error {
 public:
  Error(tarn_status code, const char* message)
      : std::runtime_error(message), code_(code) {}
  tarn_status code() const { return code_; }

 private:
  tarn_status code_;
};

namespace internal {
/// Throws the error that a C call stored, and frees it.
inline void Check(tarn_status status, tarn_error* error) {
  if (status == TARN_OK) return;
  const Error thrown(status, tarn_error_message(error));
  tarn_error_free(error);
  throw thrown;
}

/// Makes a C call with its error argument added; throws what it stored. The
/// error is read in a separate statement: among the arguments of one call the
/// order is the compiler's choice.
template <typename Function, typename... Arguments>
void Call(Function function, Arguments... arguments) {
  tarn_error* error = nullptr;
  const tarn_status status = function(arguments..., &error);
  Check(status, error);
}

/// Returns what a C call writes into a buffer; `call(data, size, &count,
/// &error)` reports the size needed and is repeated if the guess was smaller.
template <typename Buffer, typename Function>
Buffer Fill(Buffer buffer, const Function& call) {
  for (;;) {
    tarn_error* error = nullptr;
    std::uint64_t count = 0;
    const tarn_status status =
        call(buffer.data(), buffer.size(), &count, &error);
    const bool whole = count <= buffer.size();
    if (whole || (status != TARN_OK && status != TARN_ERROR_SHAPE)) {
      Check(status, error);
    }
    buffer.resize(count);
    if (whole) return buffer;
    tarn_error_free(error);
  }
}
}  // namespace internal

class State;

/// tarn_model_options, with its defaults.
struct ModelOptions {
  int weights = TARN_WEIGHTS_AUTO;
  int threads = 0;  // 0: as many as the process may use
  bool use_mmap = true;
  bool exact = false;
  int cache = TARN_CACHE_F32;
};

/// tarn_sampler_options, with its defaults.
struct SamplerOptions {
  double temperature = 0.8;
  std::int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  std::uint64_t seed = 0, stream = 0;
  double typical_p = 1, top_n_sigma = -1;
  double xtc_probability = 0, xtc_threshold = 0.1;
  double dynatemp_range = 0, dynatemp_exponent = 1;
  std::int64_t min_keep = 0, repeat_last_n = 64;
  double repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  double dry_multiplier = 0, dry_base = 1.75;
  std::int64_t dry_allowed_length = 2, dry_penalty_last_n = 64;
  /// Without a value: newline, colon, quotation mark and asterisk.
  std::optional<std::vector<std::string>> dry_sequence_breakers = std::nullopt;
  std::int64_t mirostat = 0;
  double mirostat_tau = 5, mirostat_eta = 0.1;
  std::vector<tarn_logit_bias> logit_bias = {};
  std::string samplers = {};  // empty: all, in llama.cpp's order
};

namespace internal {
/// Copies what the structs of C and of C++ have under one name.
template <typename From, typename To>
void CopySampler(const From& from, To& to) {
  to.temperature = from.temperature;
  to.top_k = from.top_k;
  to.top_p = from.top_p;
  to.min_p = from.min_p;
  to.seed = from.seed;
  to.stream = from.stream;
  to.typical_p = from.typical_p;
  to.top_n_sigma = from.top_n_sigma;
  to.xtc_probability = from.xtc_probability;
  to.xtc_threshold = from.xtc_threshold;
  to.dynatemp_range = from.dynatemp_range;
  to.dynatemp_exponent = from.dynatemp_exponent;
  to.min_keep = from.min_keep;
  to.repeat_last_n = from.repeat_last_n;
  to.repeat_penalty = from.repeat_penalty;
  to.presence_penalty = from.presence_penalty;
  to.frequency_penalty = from.frequency_penalty;
  to.dry_multiplier = from.dry_multiplier;
  to.dry_base = from.dry_base;
  to.dry_allowed_length = from.dry_allowed_length;
  to.dry_penalty_last_n = from.dry_penalty_last_n;
  to.mirostat = from.mirostat;
  to.mirostat_tau = from.mirostat_tau;
  to.mirostat_eta = from.mirostat_eta;
}

/// Options for C calls; refers to `options` and owns what C needs besides.
class Sampling {
 public:
  explicit Sampling(const SamplerOptions& options) {
    CopySampler(options, c_);
    if (options.dry_sequence_breakers) {
      for (const std::string& text : *options.dry_sequence_breakers) {
        breakers_.push_back(text.c_str());
      }
      c_.dry_sequence_breaker_count = breakers_.size();
      breakers_.push_back(nullptr);  // a pointer also for none
      c_.dry_sequence_breakers = breakers_.data();
    }
    c_.logit_bias = options.logit_bias.data();
    c_.logit_bias_count = options.logit_bias.size();
    if (!options.samplers.empty()) c_.samplers = options.samplers.c_str();
  }
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;
  const tarn_sampler_options* get() const { return &c_; }

 private:
  tarn_sampler_options c_ = TARN_SAMPLER_OPTIONS_INIT;
  std::vector<const char*> breakers_;
};
}  // namespace internal

/// The options that State::Generate, Model::Generate and Session::Begin take.
struct GenerateOptions {
  std::uint64_t max_tokens = 256;
  SamplerOptions sampler = {};
  std::vector<std::string> stop = {};  // texts that end the run, not part of it
  /// Without a value: those with which the model's texts end.
  std::optional<std::vector<std::int32_t>> stop_tokens = std::nullopt;
  /// What the text must be: TARN_GRAMMAR_*, and its source.
  int grammar_kind = TARN_GRAMMAR_NONE;
  std::string grammar = {};
};

namespace internal {
/// Options for C calls; refers to `options` and owns what C needs besides.
class Generating {
 public:
  explicit Generating(const GenerateOptions& options)
      : sampling_(options.sampler) {
    c_.max_tokens = options.max_tokens;
    c_.sampler = sampling_.get();
    for (const std::string& text : options.stop) stop_.push_back(text.c_str());
    c_.stop = stop_.data();
    c_.stop_count = stop_.size();
    if (options.stop_tokens) {
      const bool empty = options.stop_tokens->empty();
      c_.stop_tokens = empty ? &none_ : options.stop_tokens->data();
      c_.stop_token_count = options.stop_tokens->size();
    }
    c_.grammar_kind = options.grammar_kind;
    const bool has_source = options.grammar_kind != TARN_GRAMMAR_NONE &&
                            options.grammar_kind != TARN_GRAMMAR_JSON;
    if (has_source) c_.grammar = options.grammar.c_str();
  }
  Generating(const Generating&) = delete;
  Generating& operator=(const Generating&) = delete;
  tarn_generate_options* get() { return &c_; }

 private:
  tarn_generate_options c_ = TARN_GENERATE_OPTIONS_INIT;
  Sampling sampling_;
  std::vector<const char*> stop_;
  const std::int32_t none_ = 0;
};
}  // namespace internal

/// Receives the bytes of every token; a result of false ends the run. Generate
/// rethrows what it throws.
using TokenSink = std::function<bool(std::string_view text)>;

/// tarn_beam_options, with its defaults.
struct BeamOptions {
  std::int32_t start = 0, end = 0;
  std::uint64_t beam = 1, max_tokens = 256;
  double length_penalty = 1.0;
};

/// An open model. Immutable: any number of threads may use it. Move-only.
class Model {
 public:
  /// Throws Error (TARN_ERROR_FORMAT, TARN_ERROR_IO) when the directory holds
  /// no valid model.
  static Model Open(const std::string& path, const ModelOptions& options = {}) {
    tarn_model_options c = TARN_MODEL_OPTIONS_INIT;
    c.weights = options.weights;
    c.threads = options.threads;
    c.use_mmap = options.use_mmap ? 1 : 0;
    c.exact = options.exact ? 1 : 0;
    c.cache = options.cache;
    Model model;
    internal::Call(tarn_model_open, path.c_str(), &c, &model.model_);
    return model;
  }
  Model(Model&& other) noexcept
      : model_(std::exchange(other.model_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    std::swap(model_, other.model_);
    return *this;
  }
  ~Model() { tarn_model_close(model_); }

  std::uint64_t vocab_size() const { return tarn_model_vocab_size(model_); }
  std::uint64_t n_outputs() const { return tarn_model_n_outputs(model_); }
  std::uint64_t parameters() const { return tarn_model_parameters(model_); }
  std::uint64_t state_bytes() const { return tarn_model_state_bytes(model_); }

  /// TARN_ARCH_DECODER, _ENCODER or _SEQ2SEQ.
  int arch() const { return tarn_model_arch(model_); }
  /// Names of a classifier's classes; empty for other models.
  std::vector<std::string> labels() const {
    std::vector<std::string> names(tarn_model_n_classes(model_));
    for (std::size_t i = 0; i < names.size(); ++i) {
      names[i] = tarn_model_label(model_, i);
    }
    return names;
  }
  /// Logits of the classes for one text. Throws Error for other models.
  std::vector<float> Classify(const std::vector<std::int32_t>& tokens) const {
    // Never empty, so that tarn_classify itself refuses other models.
    std::vector<float> logits(tarn_model_n_classes(model_) + 1);
    internal::Call(tarn_classify, model_, tokens.data(), tokens.size(),
                   logits.data());
    logits.pop_back();
    return logits;
  }

  /// Language models: the vector of each text, [d_model] floats of length 1.
  /// pooling: TARN_POOLING_MEAN or _LAST.
  std::vector<std::vector<float>> Embed(
      const std::vector<std::vector<std::int32_t>>& texts,
      int pooling = TARN_POOLING_MEAN) const {
    const std::size_t width = tarn_model_d_model(model_);
    std::vector<tarn_text> c;
    for (const auto& text : texts) c.push_back({text.data(), text.size()});
    std::vector<float> all(texts.size() * width);
    internal::Call(tarn_embed, model_, c.data(), c.size(), pooling, all.data());
    std::vector<std::vector<float>> vectors;
    for (auto at = all.begin(); at != all.end();) {
      const auto end = at + static_cast<std::ptrdiff_t>(width);
      vectors.emplace_back(at, end);
      at = end;
    }
    return vectors;
  }

  std::vector<std::int32_t> Encode(std::string_view text) const {
    // Seldom more tokens than bytes; normalising may lengthen the text.
    return internal::Fill(std::vector<std::int32_t>(text.size()),
                          [&](std::int32_t* tokens, std::uint64_t capacity,
                              std::uint64_t* count, tarn_error** error) {
                            return tarn_encode(model_, text.data(), text.size(),
                                               tokens, capacity, count, error);
                          });
  }
  std::string Decode(const std::vector<std::int32_t>& tokens) const {
    // A token may have any number of bytes.
    return internal::Fill(std::string(8 * tokens.size(), '\0'),
                          [&](char* text, std::uint64_t capacity,
                              std::uint64_t* bytes, tarn_error** error) {
                            return tarn_decode(model_, tokens.data(),
                                               tokens.size(), text, capacity,
                                               bytes, error);
                          });
  }
  /// What one token adds to a text that it does not begin.
  std::string Decode(std::int32_t token) const;
  /// Encode for a prompt, with the tokens that come before and after a text.
  std::vector<std::int32_t> EncodePrompt(std::string_view text) const {
    return internal::Fill(std::vector<std::int32_t>(text.size() + 2),
                          [&](std::int32_t* tokens, std::uint64_t capacity,
                              std::uint64_t* count, tarn_error** error) {
                            return tarn_encode_prompt(model_, text.data(),
                                                      text.size(), tokens,
                                                      capacity, count, error);
                          });
  }
  /// The options with which its directory says to draw, or the defaults.
  SamplerOptions sampler() const {
    tarn_sampler_options c = TARN_SAMPLER_OPTIONS_INIT;
    tarn_model_sampler(model_, &c);
    SamplerOptions options;
    internal::CopySampler(c, options);
    return options;
  }

  /// Returns the text that follows a prompt, generated from a new state; `sink`
  /// receives each token as it comes.
  std::string Generate(std::string_view prompt,
                       const GenerateOptions& options = {},
                       const TokenSink& sink = {}) const;

  /// The underlying object, for calls of tarn.h; owned by this one.
  const tarn_model* get() const { return model_; }

 private:
  Model() = default;
  tarn_model* model_ = nullptr;
};

/// Text of tokens that come one by one: together what Model::Decode gives for
/// all of them. Keeps its model alive. Move-only; one thread at a time.
class Decoder {
 public:
  /// continues: the tokens continue a text, such as a prompt.
  explicit Decoder(const Model& model, bool continues = false) {
    internal::Call(tarn_decoder_new, model.get(), continues ? 1 : 0, &decoder_);
  }
  Decoder(Decoder&& other) noexcept
      : decoder_(std::exchange(other.decoder_, nullptr)) {}
  Decoder& operator=(Decoder&& other) noexcept {
    std::swap(decoder_, other.decoder_);
    return *this;
  }
  ~Decoder() { tarn_decoder_free(decoder_); }

  /// The bytes that one more token adds; they need not be whole characters.
  std::string Next(std::int32_t token) {
    return internal::Fill(std::string(64, '\0'),
                          [&](char* text, std::uint64_t capacity,
                              std::uint64_t* bytes, tarn_error** error) {
                            return tarn_decoder_next(decoder_, token, text,
                                                     capacity, bytes, error);
                          });
  }

 private:
  tarn_decoder* decoder_ = nullptr;
};

inline std::string Model::Decode(std::int32_t token) const {
  return Decoder(*this, /*continues=*/true).Next(token);
}

/// The past of one sequence, as a value. Move it, Clone() it; copying is never
/// implicit. Keeps its model alive. One thread at a time.
class State {
 public:
  explicit State(const Model& model) : model_(model.get()) {
    internal::Call(tarn_state_new, model_, &state_);
  }
  /// The state before the first token of a source's target, for
  /// sequence-to-sequence models; throws Error for others.
  static State OfSource(const Model& model,
                        const std::vector<std::int32_t>& source) {
    State state(model.get());
    internal::Call(tarn_encode_source, state.model_, source.data(),
                   source.size(), &state.state_);
    return state;
  }
  State(State&& other) noexcept
      : model_(other.model_), state_(std::exchange(other.state_, nullptr)) {}
  State& operator=(State&& other) noexcept {
    std::swap(model_, other.model_);
    std::swap(state_, other.state_);
    return *this;
  }
  ~State() { tarn_state_free(state_); }

  /// Save writes this state to a file and Load reads one, which must be of this
  /// model (tarn_state_save, tarn_state_load). Both throw Error.
  void Save(const std::string& path) const {
    internal::Call(tarn_state_save, state_, path.c_str());
  }
  static State Load(const Model& model, const std::string& path) {
    State state(model.get());
    internal::Call(tarn_state_load, state.model_, path.c_str(), &state.state_);
    return state;
  }

  /// The bytes of that file, and a state from them (tarn_state_serialize,
  /// tarn_state_deserialize).
  std::vector<std::uint8_t> Serialize() const {
    std::uint64_t size = 0;
    internal::Call(tarn_state_serialize, state_, nullptr, std::uint64_t{0},
                   &size);
    return internal::Fill(std::vector<std::uint8_t>(size),
                          [&](std::uint8_t* bytes, std::uint64_t capacity,
                              std::uint64_t* count, tarn_error** error) {
                            return tarn_state_serialize(state_, bytes, capacity,
                                                        count, error);
                          });
  }
  static State Deserialize(const Model& model,
                           const std::vector<std::uint8_t>& bytes) {
    State state(model.get());
    internal::Call(tarn_state_deserialize, state.model_,
                   static_cast<const void*>(bytes.data()), bytes.size(),
                   &state.state_);
    return state;
  }

  State Clone() const {
    State clone(model_);
    internal::Call(tarn_state_clone, state_, &clone.state_);
    return clone;
  }
  void CopyFrom(const State& other) {
    internal::Call(tarn_state_copy, state_, other.state_);
  }
  void Reset() { internal::Call(tarn_state_reset, state_); }

  /// Consumes tokens; the logits of the last one are then last_logits().
  void Prefill(const std::vector<std::int32_t>& tokens) {
    if (tokens.empty()) return;
    logits_.resize(tarn_model_n_outputs(model_));
    internal::Call(tarn_prefill, model_, state_, tokens.data(), tokens.size(),
                   logits_.data());
  }
  void Step(std::int32_t token) { Prefill({token}); }

  /// Draws from last_logits() at this position; the token is not yet consumed.
  /// Throws Error before the first token.
  std::int32_t Sample(const SamplerOptions& options = {}) const {
    const internal::Sampling sampling(options);
    std::uint64_t count = 0;
    std::int32_t token = 0;
    const float* logits = tarn_state_last_logits(state_, &count);
    // Rows beyond the tokenizer's table stand for no text.
    count = std::min(count, tarn_model_tokenizer_size(model_));
    internal::Call(tarn_sample, logits, count, sampling.get(), position(),
                   &token);
    return token;
  }

  /// Consumes a prompt and generates token by token (tarn_generate). Returns
  /// the number of tokens; the state then holds all that `sink` received.
  std::uint64_t Generate(const std::vector<std::int32_t>& prompt,
                         const GenerateOptions& options = {},
                         const TokenSink& sink = {}) {
    struct Told {  // no exception may cross C
      const TokenSink& sink;
      std::exception_ptr thrown;
    } told{sink, nullptr};
    internal::Generating generating(options);
    tarn_generate_options& c = *generating.get();
    c.user = &told;
    c.callback = [](void* user, std::int32_t, const char* text,
                    std::uint64_t bytes) -> std::int32_t {
      Told& to = *static_cast<Told*>(user);
      try {
        return !to.sink || to.sink({text, bytes}) ? 0 : 1;
      } catch (...) {
        to.thrown = std::current_exception();
        return 1;
      }
    };
    std::uint64_t generated = 0;
    internal::Call(tarn_generate, model_, state_, prompt.data(), prompt.size(),
                   &c, &generated);
    if (told.thrown) std::rethrow_exception(told.thrown);
    return generated;
  }

  /// The best continuation, without start and end. The state stays as it is.
  std::vector<std::int32_t> BeamSearch(const BeamOptions& options) const {
    tarn_beam_options c = TARN_BEAM_OPTIONS_INIT;
    c.start = options.start;
    c.end = options.end;
    c.beam = options.beam;
    c.max_tokens = options.max_tokens;
    c.length_penalty = options.length_penalty;
    // Room for the longest result up to kMost; a longer one is searched again.
    constexpr std::uint64_t kMost = 1 << 20;
    return internal::Fill(
        std::vector<std::int32_t>(std::min(options.max_tokens, kMost)),
        [&](std::int32_t* tokens, std::uint64_t capacity, std::uint64_t* count,
            tarn_error** error) {
          return tarn_beam_search(model_, state_, &c, tokens, capacity, count,
                                  nullptr, error);
        });
  }

  std::vector<float> last_logits() const {
    std::uint64_t count = 0;
    const float* logits = tarn_state_last_logits(state_, &count);
    return std::vector<float>(logits, logits + count);
  }
  std::uint64_t position() const { return tarn_state_position(state_); }
  std::uint64_t bytes() const { return tarn_state_bytes(state_); }
  std::uint64_t Hash() const { return tarn_state_hash(state_); }
  bool operator==(const State& other) const {
    return tarn_state_equal(state_, other.state_) != 0;
  }
  bool operator!=(const State& other) const { return !(*this == other); }

  /// The underlying object, for calls of tarn.h; owned by this one.
  tarn_state* get() const { return state_; }

 private:
  explicit State(const tarn_model* model) : model_(model) {}
  const tarn_model* model_ = nullptr;
  tarn_state* state_ = nullptr;
  std::vector<float> logits_;
};

inline std::string Model::Generate(std::string_view prompt,
                                   const GenerateOptions& options,
                                   const TokenSink& sink) const {
  State state(*this);
  std::string all;
  state.Generate(EncodePrompt(prompt), options, [&](std::string_view text) {
    all += text;
    return !sink || sink(text);
  });
  return all;
}

/// tarn_session_options, with its defaults.
struct SessionOptions {
  std::uint64_t snapshot_bytes = 268435456;
  std::uint64_t every_token = 0;
};

/// A token of a session's text.
struct SessionToken {
  std::int32_t id;   // -1: none, with the text at its end
  int end;           // TARN_END_*
  std::string text;  // the bytes that it settles
};

/// A sequence with its whole past: state, tokens, the text that is being drawn,
/// earlier states, named marks. Move it, Fork() it; copying is never implicit.
/// Keeps its model alive. One thread at a time. tarn_session_* say what each
/// call does and costs; all throw Error.
class Session {
 public:
  explicit Session(const Model& model, const SessionOptions& options = {}) {
    const tarn_session_options c = ToC(options);
    internal::Call(tarn_session_new, model.get(), &c, &session_);
  }
  Session(Session&& other) noexcept
      : session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~Session() { tarn_session_free(session_); }

  /// Save writes this session to a file and Load reads one of this model.
  void Save(const std::string& path) const {
    internal::Call(tarn_session_save, session_, path.c_str());
  }
  static Session Load(const Model& model, const std::string& path,
                      const SessionOptions& options = {}) {
    const tarn_session_options c = ToC(options);
    Session session;
    internal::Call(tarn_session_load, model.get(), path.c_str(), &c,
                   &session.session_);
    return session;
  }
  /// The bytes of that file, and a session from them.
  std::vector<std::uint8_t> Serialize() const {
    std::uint64_t size = 0;
    internal::Call(tarn_session_serialize, session_, nullptr, std::uint64_t{0},
                   &size);
    return internal::Fill(std::vector<std::uint8_t>(size),
                          [&](std::uint8_t* bytes, std::uint64_t capacity,
                              std::uint64_t* count, tarn_error** error) {
                            return tarn_session_serialize(
                                session_, bytes, capacity, count, error);
                          });
  }
  static Session Deserialize(const Model& model,
                             const std::vector<std::uint8_t>& bytes,
                             const SessionOptions& options = {}) {
    const tarn_session_options c = ToC(options);
    Session session;
    internal::Call(tarn_session_deserialize, model.get(),
                   static_cast<const void*>(bytes.data()), bytes.size(), &c,
                   &session.session_);
    return session;
  }

  /// Consumes tokens, after those pending; the text being drawn ends.
  void Append(const std::vector<std::int32_t>& tokens) {
    internal::Call(tarn_session_append, session_, tokens.data(), tokens.size());
  }
  /// Begins a text after what is pending and a prompt; with an empty one it
  /// continues where the session stands. Consumes nothing yet.
  void Begin(const std::vector<std::int32_t>& prompt,
             const GenerateOptions& options = {}) {
    internal::Generating generating(options);
    internal::Call(tarn_session_begin, session_, prompt.data(), prompt.size(),
                   generating.get());
  }
  /// Consumes what is pending and draws a token, which is pending then.
  SessionToken Next() {
    tarn_session_token c = TARN_SESSION_TOKEN_INIT;
    internal::Call(tarn_session_next, session_, &c);
    return {c.token, c.end, std::string(c.text, c.bytes)};
  }
  /// The rest of the text; then nothing is pending.
  std::string Rest() {
    std::string all;
    for (;;) {
      const SessionToken next = Next();
      all += next.text;
      if (next.id < 0) return all;
    }
  }

  /// Draft tokens from what the text repeats of itself, or of a small model
  /// with the same tokenizer, which is kept alive (tarn_session_speculate).
  void Speculate(std::uint32_t most = 0) {
    internal::Call(tarn_session_speculate, session_, TARN_DRAFT_NGRAM,
                   static_cast<const tarn_model*>(nullptr), most);
  }
  void Speculate(const Model& draft, std::uint32_t most = 0) {
    internal::Call(tarn_session_speculate, session_, TARN_DRAFT_MODEL,
                   draft.get(), most);
  }
  /// Draft tokens of the model's own extra prediction head.
  void SpeculateMtp(std::uint32_t most = 0) {
    internal::Call(tarn_session_speculate, session_, TARN_DRAFT_MTP,
                   static_cast<const tarn_model*>(nullptr), most);
  }
  void DoNotSpeculate() {
    internal::Call(tarn_session_speculate, session_, TARN_DRAFT_NONE,
                   static_cast<const tarn_model*>(nullptr), 0);
  }
  /// Tokens read ahead since then, and how many of them were right.
  std::pair<std::uint64_t, std::uint64_t> draft_counts() const {
    std::pair<std::uint64_t, std::uint64_t> counts;
    tarn_session_draft_counts(session_, &counts.first, &counts.second);
    return counts;
  }

  /// A session that continues by itself; its text draws as this one.
  Session Fork() const { return ForkTo(nullptr); }
  /// The same with a stream of random numbers of its own.
  Session Fork(std::uint64_t stream) const { return ForkTo(&stream); }

  /// Gives the present position a name; Unmark is false where there is none.
  void Mark(const std::string& name) {
    internal::Call(tarn_session_mark, session_, name.c_str());
  }
  bool Unmark(const std::string& name) {
    return tarn_session_unmark(session_, name.c_str()) != 0;
  }
  /// Where a mark stands.
  std::uint64_t MarkPosition(const std::string& name) const {
    std::uint64_t position = 0;
    internal::Call(tarn_session_mark_position, session_, name.c_str(),
                   &position);
    return position;
  }
  /// Goes back; returns how many tokens were read again.
  std::uint64_t RollBack(std::uint64_t position) {
    std::uint64_t replayed = 0;
    internal::Call(tarn_session_rollback, session_, position, &replayed);
    return replayed;
  }
  std::uint64_t RollBackTo(const std::string& mark) {
    std::uint64_t replayed = 0;
    internal::Call(tarn_session_rollback_to, session_, mark.c_str(), &replayed);
    return replayed;
  }

  std::uint64_t position() const { return tarn_session_position(session_); }
  std::uint64_t state_bytes() const {
    return tarn_session_state_bytes(session_);
  }
  std::uint64_t snapshot_bytes() const {
    return tarn_session_snapshot_bytes(session_);
  }
  /// Those consumed, and those to consume next.
  std::vector<std::int32_t> tokens() const {
    return IdsOf(tarn_session_tokens, position());
  }
  std::vector<std::int32_t> pending() const {
    return IdsOf(tarn_session_pending, 1);
  }
  /// After the last token consumed; empty before the first.
  std::vector<float> logits() const {
    std::uint64_t count = 0;
    const float* logits = tarn_session_logits(session_, &count);
    return std::vector<float>(logits, logits + count);
  }
  /// State, tokens and pending tokens, bit for bit.
  bool operator==(const Session& other) const {
    return tarn_session_equal(session_, other.session_) != 0;
  }
  bool operator!=(const Session& other) const { return !(*this == other); }

  /// The underlying object, for calls of tarn.h; owned by this one.
  tarn_session* get() const { return session_; }

 private:
  Session() = default;
  static tarn_session_options ToC(const SessionOptions& options) {
    tarn_session_options c = TARN_SESSION_OPTIONS_INIT;
    c.snapshot_bytes = options.snapshot_bytes;
    c.every_token = options.every_token;
    return c;
  }
  Session ForkTo(const std::uint64_t* stream) const {
    Session fork;
    internal::Call(tarn_session_fork, session_, stream, &fork.session_);
    return fork;
  }
  template <typename Function>
  std::vector<std::int32_t> IdsOf(Function function,
                                  std::uint64_t guess) const {
    return internal::Fill(std::vector<std::int32_t>(guess + 1),
                          [&](std::int32_t* tokens, std::uint64_t capacity,
                              std::uint64_t* count, tarn_error** error) {
                            return function(session_, tokens, capacity, count,
                                            error);
                          });
  }

  tarn_session* session_ = nullptr;
};

/// States after beginnings that sessions of one model share
/// (tarn_prefix_cache_*). Keeps the model alive. Move-only; one thread at a
/// time.
class PrefixCache {
 public:
  PrefixCache(const Model& model, std::uint64_t max_bytes) {
    internal::Call(tarn_prefix_cache_new, model.get(), max_bytes, &cache_);
  }
  PrefixCache(PrefixCache&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)) {}
  PrefixCache& operator=(PrefixCache&& other) noexcept {
    std::swap(cache_, other.cache_);
    return *this;
  }
  ~PrefixCache() { tarn_prefix_cache_free(cache_); }

  /// Brings a session, whose past is dropped, to the longest known beginning of
  /// `tokens`; returns its length.
  std::uint64_t Restore(const std::vector<std::int32_t>& tokens,
                        Session& session, const std::string& space = "") {
    std::uint64_t length = 0;
    internal::Call(tarn_prefix_cache_restore, cache_, space.c_str(),
                   tokens.data(), tokens.size(), session.get(), &length);
    return length;
  }
  /// Adds the states that a session keeps, and its present one.
  void Insert(Session& session, const std::string& space = "") {
    internal::Call(tarn_prefix_cache_insert, cache_, space.c_str(),
                   session.get());
  }
  std::uint64_t bytes() const { return tarn_prefix_cache_bytes(cache_); }

 private:
  tarn_prefix_cache* cache_ = nullptr;
};

}  // namespace api
}  // namespace tarn
