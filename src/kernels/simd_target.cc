#include "kernels/simd_target.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_target.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "hwy/targets.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
static int64_t ThisTarget() { return HWY_TARGET; }
}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ThisTarget);

const char* SimdTargetName() {
  return hwy::TargetName(HWY_DYNAMIC_DISPATCH(ThisTarget)());
}

namespace {

// Targets that this build contains and the CPU runs; a forced target does not
// narrow the list.
std::vector<int64_t> Attainable() {
#ifdef HWY_COMPILE_ONLY_STATIC
  return {HWY_STATIC_TARGET};
#else
  static const std::vector<int64_t> targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    std::vector<int64_t> found = hwy::SupportedAndGeneratedTargets();
    // The scalar target runs everywhere; the CPU query does not list it.
    const int64_t scalar = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);
    if (scalar != 0 &&
        std::find(found.begin(), found.end(), scalar) == found.end()) {
      found.push_back(scalar);
    }
    return found;
  }();
  return targets;
#endif
}

std::string Upper(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  return upper;
}

}  // namespace

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  for (int64_t target : Attainable()) names.push_back(hwy::TargetName(target));
  return names;
}

void ForceSimdTarget(std::string_view name) {
  std::string known;
  for (int64_t target : Attainable()) {
    if (Upper(name) == hwy::TargetName(target)) {
#ifndef HWY_COMPILE_ONLY_STATIC
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(target);
#endif
      return;
    }
    if (!known.empty()) known += ", ";
    known += hwy::TargetName(target);
  }
  throw DeviceError("SIMD target (TARN_FORCE_TARGET)", "one of " + known,
                    std::string(name));
}

void ResetSimdTarget() {
#ifndef HWY_COMPILE_ONLY_STATIC
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#endif
}

void ApplySimdTargetFromEnvironment() {
  const char* name = std::getenv("TARN_FORCE_TARGET");
  if (name != nullptr && *name != '\0') ForceSimdTarget(name);
}

}  // namespace tarn
#endif  // HWY_ONCE
