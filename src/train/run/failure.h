// How the program ends after an error: one line and an exit status.
#pragma once

#include <exception>

namespace tarn::train {

constexpr int kFailure = 1, kUsage = 2, kBadFile = 3;

/// Prints "tarn train: error: ..." to standard error, one line whatever the
/// message holds, and returns the exit status: 2 for arguments, sizes and
/// devices, 3 for a bad data or model file, 1 for the rest.
int ReportFailure(const std::exception_ptr& failure);

}  // namespace tarn::train
