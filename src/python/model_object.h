// The model that objects of tarn.runtime's extension share.
#pragma once

#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "python/binding/arguments.h"
#include "python/binding/array.h"
#include "python/binding/object.h"
#include "python/binding/results.h"
#include "python/sampling_module.h"
#include "python/template_module.h"
#include "runtime/generate/beam.h"
#include "runtime/generate/embed.h"
#include "runtime/generate/pixels.h"
#include "runtime/generate/target.h"
#include "runtime/session/loaded_model.h"
#include "runtime/session/state_file.h"
#include "text/template/chat_format.h"

namespace tarn::python {

using Tokens = ArrayView<int32_t, 1>;
// Images [n, bytes of each], whole or as far as they are given.
using Images = ArrayView<uint8_t, 2>;
// Tokens, log-probability, score, finished: a Hypothesis
// (runtime/generate/beam.h).
using Found = std::tuple<std::vector<int32_t>, double, double, bool>;

// Ctrl-C ends a long call of the model within one of its regions, a search or a
// drawing between two steps.
inline bool Interrupted() {
  const Locked locked;
  return PyErr_CheckSignals() != 0;
}

// Runs f(stop) without the GIL, and raises what a signal's handler raised.
template <typename F>
void Interruptible(const F& f) {
  {
    const Unlocked unlocked;
    try {
      f(StopCheck(&Interrupted));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted) throw;
    }
  }
  if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
}

// Paths come as os.fsencode gives them: the bytes of a name need not be UTF-8.
inline std::string Path(const Bytes& path) {
  std::string name(path.text);
  if (name.find('\0') != std::string::npos) {
    throw ArgumentError("path", "a name without NUL bytes", Quoted(name));
  }
  return name;
}

inline std::vector<std::string> Copies(const std::vector<Bytes>& texts) {
  std::vector<std::string> copies;
  for (const Bytes& text : texts) copies.emplace_back(text.text);
  return copies;
}

/// A model with its tokenizer, as Python's Model holds it. Its methods release
/// the interpreter's lock while the model runs. Immutable; thread-safe.
class PyModel {
 public:
  PyModel(const Bytes& dir, const std::string& weights, int threads, bool exact,
          bool use_mmap, const std::string& cache)
      : loaded_(Open(Path(dir), weights, threads, exact, use_mmap, cache)) {}

  const LoadedModel& loaded() const { return loaded_; }
  const Model& model() const { return loaded_.model; }
  const Tokenizer& tokenizer() const { return loaded_.tokenizer; }
  // Floats in a row of logits.
  size_t outputs() const {
    return static_cast<size_t>(loaded_.model.n_outputs());
  }

  NewArray<float, 1> Prefill(State& state, const Tokens& tokens) const {
    NewArray<float, 1> logits({outputs()});
    Interruptible([&](const StopCheck& stop) {
      loaded_.model.Prefill(state, tokens.Flat(), logits.data(), stop);
    });
    return logits;
  }

  NewArray<float, 2> Score(State& state, const Tokens& tokens) const {
    NewArray<float, 2> logits({tokens.shape(0), outputs()});
    Interruptible([&](const StopCheck& stop) {
      loaded_.model.Score(state, tokens.Flat(), logits.data(), stop);
    });
    return logits;
  }

  NewArray<float, 2> StepBatch(const std::vector<State*>& states,
                               const Tokens& tokens) const {
    if (states.size() != tokens.shape(0)) {
      throw ShapeError(
          "step_batch: tokens",
          StrCat("one token for each of ", states.size(), " states"),
          StrCat(tokens.shape(0)));
    }
    NewArray<float, 2> logits({states.size(), outputs()});
    std::vector<Job> jobs(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      jobs[i].state = states[i];
      jobs[i].tokens = tokens.Flat().subspan(i, 1);
      jobs[i].logits = logits.data() + i * outputs();
    }
    // A short call is over before the states that a stop would need are kept.
    constexpr int64_t kLong = 100'000'000;  // products of a weight, 10 ms
    const bool is_long = static_cast<int64_t>(jobs.size()) >
                         kLong / (loaded_.model.parameters() + 1);
    Interruptible([&](const StopCheck& stop) {
      loaded_.model.StepBatch(jobs, is_long ? stop : StopCheck());
    });
    return logits;
  }

  State EncodeSource(const Tokens& source) const {
    std::optional<State> state;
    Interruptible([&](const StopCheck& stop) {
      state.emplace(loaded_.model.Encode(source.Flat(), stop));
    });
    return std::move(*state);
  }

  void SaveState(const State& state, const Bytes& name) const {
    const std::string path = Path(name);
    const Unlocked unlocked;
    tarn::SaveState(loaded_.model, state, path);
  }

  State LoadState(const Bytes& name) const {
    const std::string path = Path(name);
    const Unlocked unlocked;
    return tarn::LoadState(loaded_.model, path).Take();
  }

  NewBytes StateToBytes(const State& state) const {
    NewBytes bytes;
    const Unlocked unlocked;
    bytes.text.reserve(
        static_cast<size_t>(StateFileBytes(loaded_.model, state)));
    StringSink sink(bytes.text);
    tarn::SaveState(loaded_.model, state, sink);
    return bytes;
  }

  State StateFromBytes(const Bytes& file) const {
    const Unlocked unlocked;
    return tarn::LoadState(loaded_.model,
                           {reinterpret_cast<const uint8_t*>(file.text.data()),
                            file.text.size()})
        .Take();
  }

  // The best hypotheses of every start, which stays as it is.
  std::vector<std::vector<Found>> BeamSearch(
      const std::vector<const State*>& starts, int64_t beam, int64_t max_tokens,
      double length_penalty) const {
    BeamOptions options;
    options.beam = beam;
    options.max_tokens = max_tokens;
    options.length_penalty = length_penalty;
    options = TargetBeam(loaded_.tokenizer, options);
    std::vector<std::vector<Hypothesis>> found;
    Interruptible([&](const StopCheck& stop) {
      std::vector<State> copies;  // a source's keys and values stay shared
      for (const State* start : starts) copies.push_back(start->Clone());
      found = tarn::BeamSearch(loaded_.model, copies, options, stop);
    });
    std::vector<std::vector<Found>> rows(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      for (Hypothesis& h : found[i]) {
        rows[i].emplace_back(std::move(h.tokens), h.log_probability, h.score,
                             h.finished);
      }
    }
    return rows;
  }

  NewArray<float, 2> Classify(const std::vector<Tokens>& sequences) const {
    const size_t classes = loaded_.model.labels().size();
    NewArray<float, 2> logits({sequences.size(), classes});
    std::vector<std::span<const int32_t>> views;
    for (const Tokens& tokens : sequences) views.push_back(tokens.Flat());
    Interruptible([&](const StopCheck& stop) {
      loaded_.model.ClassifyBatch(views, logits.data(), stop);
    });
    return logits;
  }

  NewArray<float, 2> Embed(const std::vector<Tokens>& texts,
                           const std::string& pooling) const {
    NewArray<float, 2> vectors(
        {texts.size(), static_cast<size_t>(loaded_.model.config().d_model)});
    std::vector<std::vector<int32_t>> all;
    for (const Tokens& tokens : texts) all.push_back(All(tokens));
    const Pooling how = ParsePooling("pooling", pooling);
    Interruptible([&](const StopCheck& stop) {
      const auto made = EmbedTexts(loaded_.model, std::move(all), how, stop);
      std::copy(made.begin(), made.end(), vectors.data());
    });
    return vectors;
  }

  // Images [starts * samples, bytes] that begin with the given ones.
  NewArray<uint8_t, 2> DrawImages(const Images& given, int64_t samples,
                                  double temperature, uint64_t seed,
                                  int64_t batch) const {
    const ImageShape shape(loaded_.model.config());
    const auto starts = static_cast<int64_t>(given.shape(0));
    const ImageOptions options{samples, temperature, seed, batch};
    // Checked before memory is allocated for the images; the sizes are checked
    // again inside.
    if (samples < 1 || samples > (int64_t{1} << 40) / shape.bytes() /
                                     std::max<int64_t>(starts, 1)) {
      throw ArgumentError("samples", "1 or more, within 1 TiB of images",
                          StrCat(samples));
    }
    NewArray<uint8_t, 2> images({static_cast<size_t>(starts * samples),
                                 static_cast<size_t>(shape.bytes())});
    Interruptible([&](const StopCheck&) {
      tarn::DrawImages(loaded_.model, given.Flat(), starts, options,
                       images.data(),
                       [](int64_t, int64_t) { return !Interrupted(); });
    });
    return images;
  }

  // Nats of bytes [from, end) of every image.
  NewArray<double, 1> ScoreImages(const Images& images, int64_t from) const {
    NewArray<double, 1> nats({images.shape(0)});
    Interruptible([&](const StopCheck&) {
      tarn::ScoreImages(loaded_.model, images.Flat(), from, nats.data(),
                        [](int64_t, int64_t) { return !Interrupted(); });
    });
    return nats;
  }

  const GenerationDefaults& defaults() const { return loaded_.defaults; }

  Sampler MakeSampler(const GivenOptions& given, uint64_t seed,
                      uint64_t stream) const {
    SamplerOptions options;
    options.seed = seed;
    options.stream = stream;
    return Sampler(OptionsOf(given, std::move(options)), loaded_.tokenizer);
  }

  std::vector<int32_t> Encode(const Bytes& text, bool add_special,
                              bool allow_special) const {
    EncodeOptions options;
    options.add_special = add_special;
    options.allow_special = allow_special;
    return loaded_.tokenizer.Encode(text.text, options).Take();
  }

  // Ids of a conversation, whose variables come as JSON text.
  std::vector<int32_t> EncodeChat(const std::string& source,
                                  const std::string& context,
                                  const std::vector<int>& now) const {
    const RenderOptions options = RenderOptionsOf(now);
    const Unlocked unlocked;
    const RenderedText text =
        ChatTemplate::Parse(source).Take().RenderJson(context, options).Take();
    return EncodeRendered(loaded_.tokenizer, text).Take();
  }

  NewBytes Decode(const Tokens& tokens) const {
    return {loaded_.tokenizer.Decode(All(tokens))};
  }

  std::string DecodeText(const Tokens& tokens, bool skip_special) const {
    return loaded_.tokenizer.DecodeText(All(tokens), skip_special);
  }

 private:
  static std::vector<int32_t> All(const Tokens& tokens) {
    const std::span<const int32_t> flat = tokens.Flat();
    return {flat.begin(), flat.end()};
  }

  static LoadedModel Open(const std::string& dir, const std::string& weights,
                          int threads, bool exact, bool use_mmap,
                          const std::string& cache) {
    ModelOptions options = {ParseWeightType("Model: weights", weights), threads,
                            use_mmap, exact};
    options.cache = ParseCacheType("Model: cache", cache);
    const Unlocked unlocked;
    return LoadedModel::Open(dir, options).Take();
  }

  LoadedModel loaded_;
};

}  // namespace tarn::python
