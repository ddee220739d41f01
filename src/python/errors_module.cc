#include "python/errors_module.h"

#include <cstring>
#include <exception>

#include "core/error.h"

namespace nb = nanobind;

namespace tarn {

namespace {

// A message may hold a path, whose bytes need not be UTF-8: such a byte becomes
// \xNN, so that Python can print it anywhere.
void SetError(PyObject* type, const char* message) {
  PyObject* text =
      PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)),
                           "backslashreplace");
  if (text == nullptr) return;  // out of memory, which is set
  PyErr_SetObject(type, text);
  Py_DECREF(text);
}

}  // namespace

void BindErrors(nb::module_& m) {
  static PyObject* format_error =
      nb::exception<FormatError>(m, "FormatError", PyExc_ValueError).ptr();
  static PyObject* numeric_error =
      nb::exception<NumericError>(m, "NumericError", PyExc_ArithmeticError)
          .ptr();
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void*) {
        try {
          std::rethrow_exception(pointer);
        } catch (const Error& error) {
          PyObject* type = PyExc_RuntimeError;
          switch (error.code()) {
            case ErrorCode::kArgument:
            case ErrorCode::kShape:
            case ErrorCode::kDevice:
              type = PyExc_ValueError;
              break;
            case ErrorCode::kDType:
              type = PyExc_TypeError;
              break;
            case ErrorCode::kFormat:
              type = format_error;
              break;
            case ErrorCode::kIo:
              type = PyExc_OSError;
              break;
            case ErrorCode::kNumeric:
              type = numeric_error;
              break;
            default:
              break;
          }
          SetError(type, error.what());
        }
      });
}

}  // namespace tarn
