// Typed errors: every message names the place, what was wanted and what was
// given. Exceptions serve callers' mistakes; Result<T> serves untrusted bytes.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tarn {

/// What kind of thing went wrong; also the status codes of the C interface.
enum class ErrorCode : int {
  kOk = 0,
  kArgument = 1,  // a value outside its range, or a combination not allowed
  kShape = 2,     // sizes that do not fit each other
  kDType = 3,
  kDevice = 4,   // a back end or SIMD target this build or machine lacks
  kFormat = 5,   // a file whose contents are not what they must be
  kIo = 6,       // the operating system refused: missing file, no space
  kNumeric = 7,  // NaN or infinity where a number must be
  kInterrupted = 8,
  kInternal = 9,  // a broken invariant of tarn itself
};

/// Base of every exception tarn throws. Immutable; safe to copy across threads.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string where, std::string wanted,
        std::string given)
      : std::runtime_error(where + ": want " + wanted + ", got " + given),
        code_(code),
        where_(std::move(where)),
        wanted_(std::move(wanted)),
        given_(std::move(given)) {}
  /// For failures with nothing wanted and given, such as an interrupted run.
  Error(ErrorCode code, const std::string& message)
      : std::runtime_error(message), code_(code), where_(message) {}

  ErrorCode code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& wanted() const { return wanted_; }
  const std::string& given() const { return given_; }

 private:
  ErrorCode code_;
  std::string where_, wanted_, given_;
};

/// Throws a copy of `error` as the type that its code stands for, even if it
/// has been copied into another type on the way.
[[noreturn]] void Throw(const Error& error);

#define TARN_DEFINE_ERROR(Name, kind)                                          \
  class Name : public Error {                                                  \
   public:                                                                     \
    Name(std::string where, std::string wanted, std::string given)             \
        : Error(kind, std::move(where), std::move(wanted), std::move(given)) { \
    }                                                                          \
    explicit Name(const std::string& message) : Error(kind, message) {}        \
                                                                               \
   private:                                                                    \
    explicit Name(const Error& error) : Error(error) {}                        \
    friend void Throw(const Error& error);                                     \
  }
TARN_DEFINE_ERROR(ArgumentError, ErrorCode::kArgument);
TARN_DEFINE_ERROR(ShapeError, ErrorCode::kShape);
TARN_DEFINE_ERROR(DTypeError, ErrorCode::kDType);
TARN_DEFINE_ERROR(DeviceError, ErrorCode::kDevice);
TARN_DEFINE_ERROR(FormatError, ErrorCode::kFormat);
TARN_DEFINE_ERROR(IoError, ErrorCode::kIo);
TARN_DEFINE_ERROR(NumericError, ErrorCode::kNumeric);
#undef TARN_DEFINE_ERROR

[[noreturn]] inline void Throw(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kArgument:
      throw ArgumentError(error);
    case ErrorCode::kShape:
      throw ShapeError(error);
    case ErrorCode::kDType:
      throw DTypeError(error);
    case ErrorCode::kDevice:
      throw DeviceError(error);
    case ErrorCode::kFormat:
      throw FormatError(error);
    case ErrorCode::kIo:
      throw IoError(error);
    case ErrorCode::kNumeric:
      throw NumericError(error);
    case ErrorCode::kOk:
    case ErrorCode::kInterrupted:
    case ErrorCode::kInternal:
      break;  // no type of their own
  }
  throw error;
}

/// Joins its arguments as text: StrCat("layer ", 3).
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// "[2, 128, 8, 64]".
inline std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

/// A value, or the error in its place (C++20 has no std::expected).
/// Readers of files and requests return it; Take() is the throwing form.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : held_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return std::holds_alternative<T>(held_); }
  const Error& error() const { return std::get<Error>(held_); }
  T& value() & { return std::get<T>(held_); }
  const T& value() const& { return std::get<T>(held_); }
  T&& value() && { return std::get<T>(std::move(held_)); }
  /// The value, or throws the error as the type of its kind.
  T Take() && {
    if (!ok()) Throw(error());
    return std::get<T>(std::move(held_));
  }

 private:
  std::variant<T, Error> held_;
};

}  // namespace tarn
