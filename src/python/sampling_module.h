// Sampling for Python, in tarn.runtime's extension.
#pragma once

#include <Python.h>

#include <string>
#include <tuple>
#include <vector>

#include "python/binding/arguments.h"
#include "runtime/sampling/option_table.h"
#include "runtime/sampling/sampler.h"

namespace tarn::python {

/// Options that were given: (name, value), where a value is an int, a float or
/// a list of str.
using GivenOptions = std::vector<std::tuple<std::string, SamplerValue>>;

/// Throws ArgumentError for an option out of range.
SamplerOptions OptionsOf(const GivenOptions& given, SamplerOptions options);

/// (name, value) of every row of the table.
GivenOptions AllOptions(const SamplerOptions& options);

template <>
class Argument<SamplerValue> {
 public:
  explicit Argument(PyObject* object) {
    if (PyFloat_Check(object)) {
      value_ = Argument<double>(object).Get();
    } else if (PyList_Check(object)) {
      value_ = Argument<std::vector<std::string>>(object).Get();
    } else {
      value_ = Argument<int64_t>(object).Get();
    }
  }
  const SamplerValue& Get() const { return value_; }

 private:
  SamplerValue value_;
};

/// Adds the class Sampler and sampling_options(), rows of (name, type, default,
/// what it takes, what it does). Throws ErrorIsSet.
void AddSampling(PyObject* module);

}  // namespace tarn::python
