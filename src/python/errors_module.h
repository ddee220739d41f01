// FormatError and NumericError for Python, and which exception each kind of
// tarn::Error becomes: a kind of the built-in one people expect.
#pragma once

#include <nanobind/nanobind.h>

namespace tarn {

void BindErrors(nanobind::module_& m);

}  // namespace tarn
