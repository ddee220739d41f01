// Files that appear by rename only, and bounded reads of files from outside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

/// Writes to a temporary beside `path`, fsyncs, renames, fsyncs the directory.
/// Throws IoError (path, system's reason); a failure leaves nothing behind.
void WriteFileAtomically(const std::string& path, std::string_view contents);

/// Reads a regular file of at most `max_bytes`. IoError when it cannot be
/// read, FormatError when it is larger.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

}  // namespace tarn
