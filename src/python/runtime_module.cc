// tarn.runtime._tarn_runtime: Model and State for Python, numpy in and out,
// the interpreter's lock released while the model runs. python/tarn/runtime
// wraps it with types and documentation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "runtime/model.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer.h"

namespace nb = nanobind;

namespace tarn {
namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig,
                           nb::device::cpu, nb::ro>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig,
                           nb::device::cpu, nb::ro>;
using Matrix = nb::ndarray<nb::numpy, float>;

std::span<const int32_t> View(const Tokens& tokens) {
  return {tokens.data(), tokens.shape(0)};
}

// An uninitialised float32 array; its memory goes with the last reference.
Matrix NewArray(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (const size_t size : shape) count *= size;
  auto* data = new float[count == 0 ? 1 : count];
  nb::capsule owner(data,
                    [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Matrix(data, shape, owner);
}

// A model and its tokenizer, as one directory holds them.
class PyModel {
 public:
  PyModel(const std::string& dir, const std::string& weights, int threads,
          bool use_mmap)
      : model_(Open(dir, weights, threads, use_mmap)),
        tokenizer_(Tokenizer::Open(dir, model_.config()).Take()) {}

  const Model& model() const { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  size_t vocab() const { return static_cast<size_t>(model_.vocab_size()); }

  Matrix Prefill(State& state, const Tokens& tokens) const {
    Matrix logits = NewArray({vocab()});
    {
      nb::gil_scoped_release release;
      model_.Prefill(state, View(tokens), logits.data());
    }
    return logits;
  }

  Matrix Score(State& state, const Tokens& tokens) const {
    Matrix logits = NewArray({tokens.shape(0), vocab()});
    {
      nb::gil_scoped_release release;
      model_.Score(state, View(tokens), logits.data());
    }
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
    Matrix logits = NewArray({states.size(), vocab()});
    std::vector<Job> jobs(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      jobs[i].state = states[i];
      jobs[i].tokens = View(tokens).subspan(i, 1);
      jobs[i].logits = logits.data() + i * vocab();
    }
    {
      nb::gil_scoped_release release;
      model_.StepBatch(jobs);
    }
    return logits;
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

// Exceptions of their own, each a kind of the built-in one people expect.
void TranslateErrors(nb::module_& m) {
  static PyObject* format_error =
      nb::exception<FormatError>(m, "FormatError", PyExc_ValueError).ptr();
  static PyObject* numeric_error =
      nb::exception<NumericError>(m, "NumericError", PyExc_ArithmeticError)
          .ptr();
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void*) {
        try {
          std::rethrow_exception(pointer);
        } catch (const Error& error) {
          PyObject* type = PyExc_RuntimeError;
          switch (error.code()) {
            case ErrorCode::kArgument:
            case ErrorCode::kShape:
            case ErrorCode::kDevice:
              type = PyExc_ValueError;
              break;
            case ErrorCode::kDType:
              type = PyExc_TypeError;
              break;
            case ErrorCode::kFormat:
              type = format_error;
              break;
            case ErrorCode::kIo:
              type = PyExc_OSError;
              break;
            case ErrorCode::kNumeric:
              type = numeric_error;
              break;
            default:
              break;
          }
          PyErr_SetString(type, error.what());
        }
      });
}

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
      .def_prop_ro("last_logits", [](const State& state) -> nb::object {
        const std::span<const float> logits = state.last_logits();
        if (logits.empty()) return nb::none();
        Matrix copy = NewArray({logits.size()});
        std::copy(logits.begin(), logits.end(), copy.data());
        return nb::cast(copy);
      });
}

void BindModel(nb::module_& m) {
  nb::class_<PyModel>(m, "Model")
      .def(nb::init<const std::string&, const std::string&, int, bool>())
      .def("prefill", &PyModel::Prefill)
      .def("score", &PyModel::Score)
      .def("step_batch", &PyModel::StepBatch)
      .def(
          "encode",
          [](const PyModel& model, nb::bytes text) {
            return model.tokenizer().Encode({text.c_str(), text.size()}).Take();
          })
      .def("decode",
           [](const PyModel& model, const Tokens& tokens) {
             std::string text;
             for (const int32_t token : View(tokens)) {
               model.tokenizer().Decode(token, text);
             }
             return nb::bytes(text.data(), text.size());
           })
      .def_prop_ro("config_json",
                   [](const PyModel& model) {
                     return ConfigToJson(model.model().config());
                   })
      .def_prop_ro(
          "vocab_size",
          [](const PyModel& model) { return model.model().vocab_size(); })
      .def_prop_ro(
          "tokenizer_size",
          [](const PyModel& model) { return model.tokenizer().vocab_size(); })
      .def_prop_ro(
          "parameters",
          [](const PyModel& model) { return model.model().parameters(); })
      .def_prop_ro(
          "weight_bytes",
          [](const PyModel& model) { return model.model().weight_bytes(); })
      .def_prop_ro(
          "state_bytes",
          [](const PyModel& model) { return model.model().state_bytes(); })
      .def_prop_ro("threads", [](const PyModel& model) {
        return model.model().threads();
      });
}

}  // namespace
}  // namespace tarn

NB_MODULE(_tarn_runtime, m) {
  using namespace tarn;  // NOLINT: the entry function of the module
  m.attr("version") = TARN_VERSION;
  TranslateErrors(m);
  BindState(m);
  BindModel(m);
  m.def("sample", [](const Floats& logits, double temperature, int64_t top_k,
                     double top_p, double min_p, uint64_t seed, uint64_t stream,
                     uint64_t position) {
    const SamplerOptions options{temperature, top_k, top_p,
                                 min_p,       seed,  stream};
    CheckSampler(options);
    return Sample({logits.data(), logits.shape(0)}, options, position);
  });
}
