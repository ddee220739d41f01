// Chat templates for Python, in tarn.runtime's extension.
#pragma once

#include <Python.h>

namespace tarn::python {

/// Adds render_chat_template(source, context, now): the context as JSON text;
/// now: year, month, day, hour, minute, second, or an empty list; a list of
/// (text, from_data). Throws ErrorIsSet.
void AddTemplates(PyObject* module);

}  // namespace tarn::python
