// Chat templates for Python, in tarn.runtime's extension.
#pragma once

#include <Python.h>

#include <vector>

#include "text/template/chat_template.h"

namespace tarn::python {

/// now: year, month, day, hour, minute, second, or an empty list. Throws
/// ArgumentError.
RenderOptions RenderOptionsOf(const std::vector<int>& now);

/// Adds render_chat_template(source, context, now): the context as JSON text;
/// now: year, month, day, hour, minute, second, or an empty list; a list of
/// (text, from_data). And chat_format(dir): the source of a directory's
/// template and its special tokens, a list of (name, text). Throws ErrorIsSet.
void AddTemplates(PyObject* module);

}  // namespace tarn::python
