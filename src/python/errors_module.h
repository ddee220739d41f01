// FormatError and NumericError for Python, and which exception each kind of
// tarn::Error becomes: the matching built-in one or a subclass of it.
#pragma once

#include <Python.h>

namespace tarn::python {

/// Adds the exceptions to a module. Throws ErrorIsSet.
void AddErrors(PyObject* module);

/// Inside a catch block: sets Python's error from the exception. One that
/// Python has set already (ErrorIsSet) stays.
void SetErrorFromException() noexcept;

}  // namespace tarn::python
