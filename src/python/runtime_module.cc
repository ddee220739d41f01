// tarn.runtime._tarn_runtime: Model and State for Python, numpy in and out,
// the interpreter's lock released while the model runs. python/tarn/runtime
// wraps it with types and documentation; python/tarn/accounting.py does the
// same for what accounting_module.cc adds.
#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "python/accounting_module.h"
#include "python/binding/array.h"
#include "python/binding/class.h"
#include "python/binding/function.h"
#include "python/binding/object.h"
#include "python/errors_module.h"
#include "python/model_object.h"
#include "python/sampling_module.h"
#include "python/session_module.h"
#include "python/template_module.h"
#include "runtime/generate/generate.h"

namespace tarn::python {
namespace {

// A text as it grows, for Python's generator. Its model and state are kept
// alive by the Python object.
class PyGeneration {
 public:
  PyGeneration(const PyModel& model, State& state, int64_t max_tokens,
               const SamplerOptions& sampler, const std::vector<Bytes>& stop,
               const std::vector<int32_t>& stop_tokens)
      : text_(model.model(), model.tokenizer(), state,
              {sampler, max_tokens, stop_tokens, Copies(stop)}) {}

  void Prompt(const Tokens& tokens) {
    Interruptible(
        [&](const StopCheck& stop) { text_.Prompt(tokens.Flat(), stop); });
  }

  // Bytes that the next token settles, None after the last.
  std::optional<NewBytes> Next() {
    if (text_.done()) return std::nullopt;
    {
      const Unlocked unlocked;
      if (text_.Draw()) text_.Consume();
    }
    return NewBytes{std::string(text_.text())};
  }

 private:
  Generation text_;
};

// Text of tokens that come one by one. Python keeps the model alive.
class PyDecoder {
 public:
  explicit PyDecoder(const PyModel& model) : tokenizer_(model.tokenizer()) {}

  NewBytes Next(int32_t token) {
    NewBytes bytes;
    tokenizer_.Decode(token, progress_, bytes.text);
    return bytes;
  }

 private:
  const Tokenizer& tokenizer_;
  DecodeProgress progress_;
};

void AddState(PyObject* module) {
  static PyMethodDef methods[] = {
      Method<&State::Clone>("clone"),
      Method<&State::CopyFrom>("copy_from"),
      Method<&State::Reset>("reset"),
      Method<&State::Hash>("hash"),
      Method<[](const State& a, const State& b) { return a == b; }>("equals"),
      kLastMethod};
  static PyGetSetDef properties[] = {
      Property<&State::position>("position"),
      Property<&State::bytes>("nbytes"),
      Property<&State::source_len>("source_len"),
      Property<&State::memory_bytes>("memory_bytes"),
      Property<[](const State& state) -> std::optional<NewArray<float, 1>> {
        const std::span<const float> logits = state.last_logits();
        if (logits.empty()) return std::nullopt;
        NewArray<float, 1> copy({logits.size()});
        std::copy(logits.begin(), logits.end(), copy.data());
        return copy;
      }>("last_logits"),
      kLastProperty};
  constexpr auto make = [](const PyModel& model) {
    return std::make_unique<State>(model.model());
  };
  Class<State>::Add(module, "_tarn_runtime.State", methods, properties,
                    &Construct<make, /*owners=*/1>);
}

// A fact of the model (`get` of Model) as a property.
template <auto get>
PyGetSetDef Fact(const char* name) {
  return Property<[](const PyModel& self) { return (self.model().*get)(); }>(
      name);
}

void AddModel(PyObject* module) {
  static PyMethodDef methods[] = {
      Method<&PyModel::Prefill>("prefill"),
      Method<&PyModel::Score>("score"),
      Method<&PyModel::StepBatch>("step_batch"),
      Method<&PyModel::EncodeSource>("encode_source"),
      Method<&PyModel::SaveState>("save_state"),
      Method<&PyModel::LoadState>("load_state"),
      Method<&PyModel::StateToBytes>("state_to_bytes"),
      Method<&PyModel::StateFromBytes>("state_from_bytes"),
      Method<&PyModel::BeamSearch>("beam_search"),
      Method<&PyModel::Classify>("classify"),
      Method<&PyModel::Embed>("embed"),
      Method<&PyModel::DrawImages>("draw_images"),
      Method<&PyModel::ScoreImages>("score_images"),
      Method<&PyModel::MakeSampler>("sampler"),
      Method<&PyModel::Encode>("encode"),
      Method<&PyModel::EncodeChat>("encode_chat"),
      Method<&PyModel::Decode>("decode"),
      Method<&PyModel::DecodeText>("decode_text"),
      kLastMethod};
  static PyGetSetDef properties[] = {
      Fact<&Model::vocab_size>("vocab_size"),
      Fact<&Model::n_outputs>("n_outputs"),
      Fact<&Model::parameters>("parameters"),
      Fact<&Model::weight_bytes>("weight_bytes"),
      Fact<&Model::state_bytes>("state_bytes"),
      Fact<&Model::state_bytes_per_token>("state_bytes_per_token"),
      Fact<&Model::memory_bytes>("memory_bytes"),
      Fact<&Model::memory_bytes_per_token>("memory_bytes_per_token"),
      Fact<&Model::threads>("threads"),
      Property<[](const PyModel& self) -> std::string {
        return Name(self.model().options().cache);
      }>("cache"),
      Fact<&Model::labels>("labels"),
      Property<[](const PyModel& self) {
        return ConfigToFlatJson(self.model().config());
      }>("config_json"),
      Property<[](const PyModel& self) {
        return self.tokenizer().vocab_size();
      }>("tokenizer_size"),
      Property<[](const PyModel& self) { return self.defaults().stop_tokens; }>(
          "stop_tokens"),
      Property<[](const PyModel& self) {
        return AllOptions(self.defaults().sampler);
      }>("sampling"),
      kLastProperty};
  constexpr auto make = [](const Bytes& dir, const std::string& weights,
                           int threads, bool exact, bool use_mmap,
                           const std::string& cache) {
    return std::make_unique<PyModel>(dir, weights, threads, exact, use_mmap,
                                     cache);
  };
  Class<PyModel>::Add(module, "_tarn_runtime.Model", methods, properties,
                      &Construct<make, /*owners=*/0>);
}

void AddDecoder(PyObject* module) {
  static PyMethodDef methods[] = {Method<&PyDecoder::Next>("next"),
                                  kLastMethod};
  static PyGetSetDef properties[] = {kLastProperty};
  constexpr auto make = [](const PyModel& model) {
    return std::make_unique<PyDecoder>(model);
  };
  Class<PyDecoder>::Add(module, "_tarn_runtime.Decoder", methods, properties,
                        &Construct<make, /*owners=*/1>);
}

void AddGeneration(PyObject* module) {
  static PyMethodDef methods[] = {Method<&PyGeneration::Prompt>("prompt"),
                                  Method<&PyGeneration::Next>("next"),
                                  kLastMethod};
  static PyGetSetDef properties[] = {kLastProperty};
  constexpr auto make = [](const PyModel& model, State& state,
                           int64_t max_tokens, const GivenOptions& given,
                           uint64_t seed, const std::vector<Bytes>& stop,
                           const std::vector<int32_t>& stop_tokens) {
    SamplerOptions sampler = OptionsOf(given, model.defaults().sampler);
    sampler.seed = seed;
    return std::make_unique<PyGeneration>(model, state, max_tokens, sampler,
                                          stop, stop_tokens);
  };
  Class<PyGeneration>::Add(module, "_tarn_runtime.Generation", methods,
                           properties, &Construct<make, /*owners=*/2>);
}

Owned MakeModule() {
  static PyMethodDef functions[] = {kLastMethod};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "_tarn_runtime",
                                   nullptr,
                                   -1,
                                   functions,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  Owned module(PyModule_Create(&definition));
  if (PyModule_AddStringConstant(module.get(), "version", TARN_VERSION) != 0) {
    throw ErrorIsSet();
  }
  AddErrors(module.get());
  AddState(module.get());
  AddModel(module.get());
  AddGeneration(module.get());
  AddSessions(module.get());
  AddDecoder(module.get());
  AddAccounting(module.get());
  AddSampling(module.get());
  AddTemplates(module.get());
  return module;
}

}  // namespace
}  // namespace tarn::python

PyMODINIT_FUNC PyInit__tarn_runtime() {
  return tarn::python::Guarded([] { return tarn::python::MakeModule(); });
}
