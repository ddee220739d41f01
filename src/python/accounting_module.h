// The formulas of config/accounting.h for Python, in tarn.runtime's extension:
// they need no torch either.
#pragma once

#include <nanobind/nanobind.h>

namespace tarn {

/// Adds them to `m`: configurations in as JSON texts, numbers and tuples out.
void BindAccounting(nanobind::module_& m);

}  // namespace tarn
