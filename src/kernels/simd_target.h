// Which SIMD target the kernels run on: chosen once from the CPU, or by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// Name of the target in use: "AVX3", "AVX2", "SSE4", "EMU128" (scalar),
/// "NEON".
const char* SimdTargetName();

/// Every target that was compiled and that this CPU can run, best first.
std::vector<std::string> SimdTargets();

/// Uses one target from now on, for every kernel and thread of the process.
/// Names as in SimdTargets(), any case; throws DeviceError listing them.
void ForceSimdTarget(std::string_view name);

/// Returns to the CPU's best target.
void ResetSimdTarget();

/// Applies the environment variable TARN_FORCE_TARGET when it is set. Front
/// ends call it at start; throws DeviceError for an unsupported name.
void ApplySimdTargetFromEnvironment();

}  // namespace tarn
