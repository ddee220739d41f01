#include "python/errors_module.h"

#include <cstring>
#include <exception>
#include <new>

#include "core/error.h"
#include "python/binding/object.h"

namespace tarn::python {
namespace {

// Made once; the module keeps them for the process.
PyObject* format_error = nullptr;
PyObject* numeric_error = nullptr;

PyObject* AddError(PyObject* module, const char* qualified_name,
                   PyObject* base) {
  Owned type(PyErr_NewException(qualified_name, base, nullptr));
  if (PyModule_AddObjectRef(module, std::strrchr(qualified_name, '.') + 1,
                            type.get()) != 0) {
    throw ErrorIsSet();
  }
  return type.Release();
}

PyObject* TypeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kArgument:
    case ErrorCode::kShape:
    case ErrorCode::kDevice:
      return PyExc_ValueError;
    case ErrorCode::kDType:
      return PyExc_TypeError;
    case ErrorCode::kFormat:
      return format_error;
    case ErrorCode::kIo:
      return PyExc_OSError;
    case ErrorCode::kNumeric:
      return numeric_error;
    default:
      return PyExc_RuntimeError;
  }
}

// A message may hold a path, whose bytes need not be UTF-8: such a byte becomes
// \xNN, so that Python can print it anywhere.
void SetError(PyObject* type, const char* message) {
  PyObject* text = PyUnicode_DecodeUTF8(
      message, static_cast<Py_ssize_t>(std::strlen(message)),
      "backslashreplace");
  if (text == nullptr) return;  // out of memory, which is set
  PyErr_SetObject(type, text);
  Py_DECREF(text);
}

}  // namespace

void AddErrors(PyObject* module) {
  format_error =
      AddError(module, "_tarn_runtime.FormatError", PyExc_ValueError);
  numeric_error =
      AddError(module, "_tarn_runtime.NumericError", PyExc_ArithmeticError);
}

void SetErrorFromException() noexcept {
  try {
    throw;
  } catch (const ErrorIsSet&) {
  } catch (const Error& error) {
    SetError(TypeOf(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    SetError(PyExc_RuntimeError, error.what());
  } catch (...) {
    SetError(PyExc_RuntimeError, "an unknown exception");
  }
}

}  // namespace tarn::python
