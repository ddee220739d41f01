#include "kernels/simd_target.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tarn {
namespace {

TEST(SimdTarget, EveryListedTargetCanBeForced) {
  const std::vector<std::string> targets = SimdTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& name : targets) {
    ForceSimdTarget(name);
    EXPECT_EQ(name, SimdTargetName());
  }
  ResetSimdTarget();
  EXPECT_EQ(targets.front(), SimdTargetName());
}

TEST(SimdTarget, UnknownNameIsAnErrorThatListsTheKnownOnes) {
  try {
    ForceSimdTarget("mmx");
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_EQ("mmx", error.given());
    EXPECT_NE(std::string::npos, error.wanted().find(SimdTargets().front()));
  }
}

}  // namespace
}  // namespace tarn
