#include "train/run/failure.h"

#include <cstdio>
#include <new>
#include <string>

#include "core/error.h"
#include "train/run/progress.h"

namespace tarn::train {
namespace {

int ExitCode(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kArgument:
    case ErrorCode::kShape:
    case ErrorCode::kDevice:
      return kUsage;
    case ErrorCode::kFormat:
      return kBadFile;
    default:
      return kFailure;
  }
}

}  // namespace

int ReportFailure(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    std::fprintf(stderr, "tarn train: error: %s\n",
                 OneLine(error.what()).c_str());
    return ExitCode(error);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tarn train: error: out of memory\n");
  } catch (const std::exception& error) {
    // libtorch's own messages carry a stack below their first line.
    const std::string text = error.what();
    std::fprintf(stderr, "tarn train: error: %s\n",
                 text.substr(0, text.find('\n')).c_str());
  }
  return kFailure;
}

}  // namespace tarn::train
