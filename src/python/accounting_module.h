// The formulas of config/accounting.h and mixers/linear/form_costs.h for
// Python, in tarn.runtime's extension: they need no torch either.
#pragma once

#include <Python.h>

namespace tarn::python {

/// Adds them to a module: configurations in as JSON texts, numbers and tuples
/// out. Throws ErrorIsSet.
void AddAccounting(PyObject* module);

}  // namespace tarn::python
