#include "python/errors_module.h"

#include <exception>

#include "core/error.h"

namespace nb = nanobind;

namespace tarn {

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
          PyErr_SetString(type, error.what());
        }
      });
}

}  // namespace tarn
