// The division by denominators that may be of either sign.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/feature_map.h"
#include "core/rng.h"
#include "mixers/linear/runtime_form.h"

namespace tarn::mixers {
namespace {

LinearForm FormOf(Denominator denominator) {
  ModelConfig config;
  SetKey(config, "feature_map", FeatureMap::kIdentity);
  SetKey(config, "denominator", denominator);
  SetKey(config, "eps", 0.5);
  FinishConfig(config);
  return LinearForm(config);
}

float Divided(Denominator denominator, float d, float bound) {
  float out = 6.0f;
  FormOf(denominator).Divide(d, bound, 1, &out);
  return out;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// sgn(d) max(|d|, 1e-6 bound), sgn(0) = +1; an empty row is zero.
TEST(LinearForm, SignedDenominatorsStayAwayFromZero) {
  const Denominator kind = Denominator::kSigned;
  EXPECT_EQ(3.0f, Divided(kind, 2.0f, 1.0f));
  EXPECT_EQ(-3.0f, Divided(kind, -2.0f, 1.0f));
  EXPECT_FLOAT_EQ(6.0f, Divided(kind, 1e-9f, 1e6f));
  EXPECT_FLOAT_EQ(-6.0f, Divided(kind, -1e-9f, 1e6f));
  EXPECT_FLOAT_EQ(6.0f, Divided(kind, 0.0f, 1e6f));
  EXPECT_FLOAT_EQ(6.0f, Divided(kind, -0.0f, 1e6f));
  EXPECT_EQ(0.0f, Divided(kind, 0.0f, 0.0f));
  EXPECT_TRUE(std::isnan(Divided(kind, kNaN, 1.0f)));
}

TEST(LinearForm, TheOtherDenominators) {
  EXPECT_EQ(3.0f, Divided(Denominator::kExact, 2.0f, 0.0f));
  EXPECT_EQ(0.0f, Divided(Denominator::kExact, 0.0f, 0.0f));
  EXPECT_EQ(0.0f, Divided(Denominator::kExact, -2.0f, 0.0f));
  EXPECT_TRUE(std::isnan(Divided(Denominator::kExact, kNaN, 0.0f)));
  EXPECT_EQ(2.4f, Divided(Denominator::kCompat, 2.0f, 0.0f));
  EXPECT_EQ(12.0f, Divided(Denominator::kCompat, 0.0f, 0.0f));
  EXPECT_EQ(6.0f, Divided(Denominator::kNone, 2.0f, 0.0f));
}

TEST(LinearForm, DotsAreSumsOfProducts) {
  Rng rng(1);
  for (const int64_t width : {0, 1, 7, 16, 17, 100}) {
    std::vector<float> a, b;
    double want = 0, size = 0;
    for (int64_t i = 0; i < width; ++i) {
      a.push_back(static_cast<float>(rng.Normal()));
      b.push_back(static_cast<float>(rng.Normal()));
      want += double{a.back()} * b.back();
      size += std::fabs(double{a.back()} * b.back());
    }
    EXPECT_NEAR(want, DotRow(a.data(), b.data(), width), 1e-6 * size);
    EXPECT_GE(NormOfRow(a.data(), width), 0.0f);
  }
}

}  // namespace
}  // namespace tarn::mixers
