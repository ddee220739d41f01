#include "python/sampling_module.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/error.h"
#include "python/binding/array.h"
#include "python/binding/class.h"
#include "python/binding/function.h"

namespace tarn::python {
namespace {

using LogitRow = ArrayView<float, 1>;
using TokenRow = ArrayView<int32_t, 1>;
// Ids that may be drawn; empty with `masked` false: all.
struct AllowedIds {
  const std::vector<int32_t>& ids;
  bool masked;
};

std::vector<uint32_t> MaskOf(const AllowedIds& allowed, size_t vocab) {
  if (!allowed.masked) return {};
  std::vector<uint32_t> mask((vocab + 31) / 32);
  for (const int32_t id : allowed.ids) {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= vocab) {
      throw ArgumentError("allowed", StrCat("ids below ", vocab), StrCat(id));
    }
    mask[index / 32] |= uint32_t{1} << (index % 32);
  }
  return mask;
}

// The token and mu after it.
std::tuple<int32_t, double> DrawToken(const Sampler& sampler,
                                      const LogitRow& logits,
                                      const TokenRow& tokens,
                                      const std::vector<int32_t>& allowed,
                                      bool masked, double mu,
                                      uint64_t position) {
  const auto mask = MaskOf({allowed, masked}, logits.shape(0));
  SamplerState state{mu};
  const int32_t token =
      sampler.Draw({logits.Flat(), tokens.Flat(), mask, position}, state);
  return {token, state.mu};
}

// Tokens and their probabilities.
std::tuple<std::vector<int32_t>, std::vector<double>> DistributionOf(
    const Sampler& sampler, const LogitRow& logits, const TokenRow& tokens,
    const std::vector<int32_t>& allowed, bool masked, double mu,
    uint64_t position) {
  const auto mask = MaskOf({allowed, masked}, logits.shape(0));
  std::vector<int32_t> ids;
  std::vector<double> probabilities;
  for (const TokenProbability& one : sampler.Distribution(
           {logits.Flat(), tokens.Flat(), mask, position}, {mu})) {
    ids.push_back(one.token);
    probabilities.push_back(one.probability);
  }
  return {std::move(ids), std::move(probabilities)};
}

std::string TypeName(const SamplerValue& value) {
  if (std::holds_alternative<int64_t>(value)) return "integer";
  return std::holds_alternative<double>(value) ? "real" : "texts";
}

using OptionRow = std::tuple<std::string, std::string, SamplerValue,
                             std::string, std::string>;

std::vector<OptionRow> OptionRows() {
  std::vector<OptionRow> rows;
  for (const SamplerOption& option : SamplerOptionTable()) {
    const SamplerValue value = ValueOf(option, SamplerOptions());
    rows.emplace_back(std::string(option.name), TypeName(value), value,
                      WantedBy(option), std::string(option.help));
  }
  return rows;
}

}  // namespace

SamplerOptions OptionsOf(const GivenOptions& given, SamplerOptions options) {
  for (const auto& [name, value] : given) {
    SetSamplerOption(options, name, value);
  }
  CheckSampler(options);
  return options;
}

GivenOptions AllOptions(const SamplerOptions& options) {
  GivenOptions all;
  for (const SamplerOption& option : SamplerOptionTable()) {
    all.emplace_back(std::string(option.name), ValueOf(option, options));
  }
  return all;
}

void AddSampling(PyObject* module) {
  static PyMethodDef functions[] = {Function<&OptionRows>("sampling_options"),
                                    kLastMethod};
  if (PyModule_AddFunctions(module, functions) != 0) throw ErrorIsSet();
  static PyMethodDef methods[] = {Method<&DrawToken>("draw"),
                                  Method<&DistributionOf>("distribution"),
                                  kLastMethod};
  static PyGetSetDef properties[] = {
      Property<[](const Sampler& self) { return self.Start().mu; }>("start"),
      kLastProperty};
  constexpr auto make = [](const GivenOptions& given, uint64_t seed,
                           uint64_t stream) {
    SamplerOptions options;
    options.seed = seed;
    options.stream = stream;
    return std::make_unique<Sampler>(OptionsOf(given, std::move(options)));
  };
  Class<Sampler>::Add(module, "_tarn_runtime.Sampler", methods, properties,
                      &Construct<make, /*owners=*/0>);
}

}  // namespace tarn::python
