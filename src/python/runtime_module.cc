// tarn.runtime._tarn_runtime: Model and State for Python, numpy in and out,
// the interpreter's lock released while the model runs. python/tarn/runtime
// wraps it with types and documentation; python/tarn/accounting.py likewise
// what accounting_module.cc adds.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/text.h"
#include "python/accounting_module.h"
#include "python/errors_module.h"
#include "runtime/generate/beam.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/pixels.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/target.h"
#include "runtime/model/model.h"
#include "runtime/state/state_file.h"
#include "text/tokenizer.h"

namespace nb = nanobind;

namespace tarn {
namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig,
                           nb::device::cpu, nb::ro>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig,
                           nb::device::cpu, nb::ro>;
using Matrix = nb::ndarray<nb::numpy, float>;
// Images [n, bytes of each], whole or as far as they are given.
using Images = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig,
                           nb::device::cpu, nb::ro>;
// Tokens, log-probability, score, finished: a Hypothesis
// (runtime/generate/beam.h).
using Found = std::tuple<std::vector<int32_t>, double, double, bool>;

std::span<const int32_t> View(const Tokens& tokens) {
  return {tokens.data(), tokens.shape(0)};
}

std::span<const uint8_t> View(const Images& images) {
  return {images.data(), images.shape(0) * images.shape(1)};
}

// An uninitialised array; its memory goes with the last reference.
template <typename T = float>
nb::ndarray<nb::numpy, T> NewArray(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (const size_t size : shape) count *= size;
  auto* data = new T[count == 0 ? 1 : count];
  nb::capsule owner(data,
                    [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

// Ctrl-C ends a long call of the model within one of its regions, a search or a
// drawing between two steps.
bool Interrupted() {
  nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

// Runs f(stop) without the GIL, and raises what a signal's handler raised.
template <typename F>
void Interruptible(const F& f) {
  {
    nb::gil_scoped_release release;
    try {
      f(StopCheck(&Interrupted));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted) throw;
    }
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

// Paths come as os.fsencode gives them: the bytes of a name need not be UTF-8.
std::string Path(const nb::bytes& path) {
  std::string name(path.c_str(), path.size());
  if (name.find('\0') != std::string::npos) {
    throw ArgumentError("path", "a name without NUL bytes", Quoted(name));
  }
  return name;
}

// A model and its tokenizer, as one directory holds them.
class PyModel {
 public:
  PyModel(const nb::bytes& dir, const std::string& weights, int threads,
          bool use_mmap)
      : model_(Open(Path(dir), weights, threads, use_mmap)),
        tokenizer_(Tokenizer::Open(Path(dir), model_.config()).Take()) {}

  const Model& model() const { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Floats in a row of logits.
  size_t outputs() const { return static_cast<size_t>(model_.n_outputs()); }

  Matrix Prefill(State& state, const Tokens& tokens) const {
    Matrix logits = NewArray({outputs()});
    Interruptible([&](const StopCheck& stop) {
      model_.Prefill(state, View(tokens), logits.data(), stop);
    });
    return logits;
  }

  Matrix Score(State& state, const Tokens& tokens) const {
    Matrix logits = NewArray({tokens.shape(0), outputs()});
    Interruptible([&](const StopCheck& stop) {
      model_.Score(state, View(tokens), logits.data(), stop);
    });
    return logits;
  }

  Matrix StepBatch(const std::vector<State*>& states,
                   const Tokens& tokens) const {
    if (states.size() != tokens.shape(0)) {
      throw ShapeError(
          "step_batch: tokens",
          StrCat("one token for each of ", states.size(), " states"),
          StrCat(tokens.shape(0)));
    }
    Matrix logits = NewArray({states.size(), outputs()});
    std::vector<Job> jobs(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      jobs[i].state = states[i];
      jobs[i].tokens = View(tokens).subspan(i, 1);
      jobs[i].logits = logits.data() + i * outputs();
    }
    // A short call is over before the states that a stop would need are kept.
    constexpr int64_t kLong = 100'000'000;  // products of a weight, 10 ms
    const bool is_long =
        static_cast<int64_t>(jobs.size()) > kLong / (model_.parameters() + 1);
    Interruptible([&](const StopCheck& stop) {
      model_.StepBatch(jobs, is_long ? stop : StopCheck());
    });
    return logits;
  }

  State EncodeSource(const Tokens& source) const {
    std::optional<State> state;
    Interruptible([&](const StopCheck& stop) {
      state.emplace(model_.Encode(View(source), stop));
    });
    return std::move(*state);
  }

  void SaveState(const State& state, const nb::bytes& name) const {
    const std::string path = Path(name);
    nb::gil_scoped_release release;
    tarn::SaveState(model_, state, path);
  }

  State LoadState(const nb::bytes& name) const {
    const std::string path = Path(name);
    nb::gil_scoped_release release;
    return tarn::LoadState(model_, path).Take();
  }

  // The best hypotheses of every start, which stays as it is.
  std::vector<std::vector<Found>> BeamSearch(
      const std::vector<const State*>& starts, int64_t beam, int64_t max_tokens,
      double length_penalty) const {
    BeamOptions options;
    options.beam = beam;
    options.max_tokens = max_tokens;
    options.length_penalty = length_penalty;
    options = TargetBeam(tokenizer_, options);
    std::vector<std::vector<Hypothesis>> found;
    Interruptible([&](const StopCheck& stop) {
      std::vector<State> copies;  // a source's keys and values stay shared
      for (const State* start : starts) copies.push_back(start->Clone());
      found = tarn::BeamSearch(model_, copies, options, stop);
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

  Matrix Classify(const std::vector<Tokens>& sequences) const {
    const size_t classes = model_.labels().size();
    Matrix logits = NewArray({sequences.size(), classes});
    std::vector<std::span<const int32_t>> views;
    for (const Tokens& tokens : sequences) views.push_back(View(tokens));
    Interruptible([&](const StopCheck& stop) {
      model_.ClassifyBatch(views, logits.data(), stop);
    });
    return logits;
  }

  // Images [starts * samples, bytes] that begin with the given ones.
  nb::ndarray<nb::numpy, uint8_t> DrawImages(const Images& given,
                                             int64_t samples,
                                             double temperature, uint64_t seed,
                                             int64_t batch) const {
    const ImageShape shape(model_.config());
    const auto starts = static_cast<int64_t>(given.shape(0));
    const ImageOptions options{samples, temperature, seed, batch};
    // Checked before memory is allocated for the images; the sizes are checked
    // again inside.
    if (samples < 1 || samples > (int64_t{1} << 40) / shape.bytes() /
                                     std::max<int64_t>(starts, 1)) {
      throw ArgumentError("samples", "1 or more, within 1 TiB of images",
                          StrCat(samples));
    }
    auto images = NewArray<uint8_t>({static_cast<size_t>(starts * samples),
                                     static_cast<size_t>(shape.bytes())});
    Interruptible([&](const StopCheck&) {
      tarn::DrawImages(model_, View(given), starts, options, images.data(),
                       [](int64_t, int64_t) { return !Interrupted(); });
    });
    return images;
  }

  // Nats of bytes [from, end) of every image.
  nb::ndarray<nb::numpy, double> ScoreImages(const Images& images,
                                             int64_t from) const {
    auto nats = NewArray<double>({images.shape(0)});
    Interruptible([&](const StopCheck&) {
      tarn::ScoreImages(model_, View(images), from, nats.data(),
                        [](int64_t, int64_t) { return !Interrupted(); });
    });
    return nats;
  }

 private:
  static Model Open(const std::string& dir, const std::string& weights,
                    int threads, bool use_mmap) {
    if (weights != "f32" && weights != "bf16") {
      throw ArgumentError("Model: weights", "'f32' or 'bf16'",
                          "'" + weights + "'");
    }
    ModelOptions options;
    options.weights = weights == "f32" ? WeightType::kF32 : WeightType::kBF16;
    options.threads = threads;
    options.use_mmap = use_mmap;
    nb::gil_scoped_release release;
    return Model::Open(dir, options).Take();
  }

  Model model_;
  Tokenizer tokenizer_;
};

// A text as it grows, for Python's generator. Its model and state are kept
// alive by the Python object.
class PyGeneration {
 public:
  PyGeneration(const PyModel& model, State& state, int64_t max_tokens,
               const SamplerOptions& sampler)
      : tokenizer_(model.tokenizer()),
        text_(model.model(), tokenizer_, state, {sampler, max_tokens}) {}

  void Prompt(const Tokens& tokens) {
    Interruptible([&](const StopCheck& stop) {
      text_.Prompt(View(tokens), stop);
    });
  }

  // Bytes of the next token, None after the last.
  nb::object Next() {
    std::optional<int32_t> token;
    {
      nb::gil_scoped_release release;
      token = text_.Next();
    }
    if (!token) return nb::none();
    std::string bytes;
    tokenizer_.Decode(*token, bytes);
    return nb::bytes(bytes.data(), bytes.size());
  }

 private:
  const Tokenizer& tokenizer_;
  Generation text_;
};

void BindState(nb::module_& m) {
  nb::class_<State>(m, "State")
      .def(
          "__init__",
          [](State* self, const PyModel& model) {
            new (self) State(model.model());
          },
          nb::keep_alive<1, 2>())
      .def("clone", &State::Clone, nb::keep_alive<0, 1>())
      .def("copy_from", &State::CopyFrom)
      .def("reset", &State::Reset)
      .def("hash", &State::Hash)
      .def("equals", [](const State& a, const State& b) { return a == b; })
      .def_prop_ro("position", &State::position)
      .def_prop_ro("nbytes", &State::bytes)
      .def_prop_ro("source_len", &State::source_len)
      .def_prop_ro("memory_bytes", &State::memory_bytes)
      .def_prop_ro("last_logits", [](const State& state) -> nb::object {
        const std::span<const float> logits = state.last_logits();
        if (logits.empty()) return nb::none();
        Matrix copy = NewArray({logits.size()});
        std::copy(logits.begin(), logits.end(), copy.data());
        return nb::cast(copy);
      });
}

// Read-only properties: facts of the model (`get` of Model) by name.
void BindFacts(nb::class_<PyModel>& model) {
  const auto fact = [&model](const char* name, auto get) {
    model.def_prop_ro(
        name, [get](const PyModel& self) { return (self.model().*get)(); });
  };
  fact("vocab_size", &Model::vocab_size);
  fact("n_outputs", &Model::n_outputs);
  fact("parameters", &Model::parameters);
  fact("weight_bytes", &Model::weight_bytes);
  fact("state_bytes", &Model::state_bytes);
  fact("state_bytes_per_token", &Model::state_bytes_per_token);
  fact("memory_bytes", &Model::memory_bytes);
  fact("memory_bytes_per_token", &Model::memory_bytes_per_token);
  fact("threads", &Model::threads);
  fact("labels", &Model::labels);
  model.def_prop_ro("config_json", [](const PyModel& self) {
    return ConfigToFlatJson(self.model().config());
  });
  model.def_prop_ro("tokenizer_size", [](const PyModel& self) {
    return self.tokenizer().vocab_size();
  });
}

void BindModel(nb::module_& m) {
  nb::class_<PyModel> model(m, "Model");
  model.def(nb::init<const nb::bytes&, const std::string&, int, bool>())
      .def("prefill", &PyModel::Prefill)
      .def("score", &PyModel::Score)
      .def("step_batch", &PyModel::StepBatch)
      .def("encode_source", &PyModel::EncodeSource, nb::keep_alive<0, 1>())
      .def("save_state", &PyModel::SaveState)
      .def("load_state", &PyModel::LoadState, nb::keep_alive<0, 1>())
      .def("beam_search", &PyModel::BeamSearch)
      .def("classify", &PyModel::Classify)
      .def("draw_images", &PyModel::DrawImages)
      .def("score_images", &PyModel::ScoreImages)
      .def(
          "encode",
          [](const PyModel& model, nb::bytes text) {
            return model.tokenizer().Encode({text.c_str(), text.size()}).Take();
          })
      .def("decode", [](const PyModel& model, const Tokens& tokens) {
        std::string text;
        for (const int32_t token : View(tokens)) {
          model.tokenizer().Decode(token, text);
        }
        return nb::bytes(text.data(), text.size());
      });
  BindFacts(model);
}

void BindGeneration(nb::module_& m) {
  nb::class_<PyGeneration>(m, "Generation")
      .def(
          "__init__",
          [](PyGeneration* self, const PyModel& model, State& state,
             int64_t max_tokens, double temperature, int64_t top_k,
             double top_p, double min_p, uint64_t seed) {
            new (self) PyGeneration(
                model, state, max_tokens,
                {temperature, top_k, top_p, min_p, seed, /*stream=*/0});
          },
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("prompt", &PyGeneration::Prompt)
      .def("next", &PyGeneration::Next);
}

}  // namespace
}  // namespace tarn

NB_MODULE(_tarn_runtime, m) {
  using namespace tarn;  // NOLINT: the entry function of the module
  m.attr("version") = TARN_VERSION;
  BindErrors(m);
  BindState(m);
  BindModel(m);
  BindGeneration(m);
  BindAccounting(m);
  m.def("sample", [](const Floats& logits, double temperature, int64_t top_k,
                     double top_p, double min_p, uint64_t seed, uint64_t stream,
                     uint64_t position) {
    const SamplerOptions options{temperature, top_k, top_p,
                                 min_p,       seed,  stream};
    CheckSampler(options);
    return Sample({logits.data(), logits.shape(0)}, options, position);
  });
}
