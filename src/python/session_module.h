// Sessions for Python, in tarn.runtime's extension.
#pragma once

#include <Python.h>

namespace tarn::python {

/// Adds the classes Session and PrefixCache. Throws ErrorIsSet.
void AddSessions(PyObject* module);

}  // namespace tarn::python
