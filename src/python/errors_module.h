// FormatError and NumericError for Python, and which exception each kind of
// tarn::Error becomes: the matching built-in one or a subclass of it.
#pragma once

#include <nanobind/nanobind.h>

namespace tarn {

void BindErrors(nanobind::module_& m);

}  // namespace tarn
