// Opening a safetensors file where errors are exceptions.
#pragma once

#include <string>
#include <utility>

#include "core/safetensors.h"

namespace tarn::nn {

/// SafetensorsFile::Open; throws IoError or FormatError, the types that
/// Result's own Take() would lose.
inline SafetensorsFile OpenTyped(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (file.ok()) return std::move(file).value();
  if (file.error().code() == ErrorCode::kIo) throw IoError(file.error().what());
  throw FormatError(file.error().what());
}

}  // namespace tarn::nn
