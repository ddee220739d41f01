#include "int8_groups.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/formats/int8_groups.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/product-inl.h"

#ifndef TARN_INT8_GROUPS_ONCE
#define TARN_INT8_GROUPS_ONCE
namespace tarn::testing {
// A group of a panel: codes [kGroup][kPanelOutputs], then scales
// [kPanelOutputs]. The last group of a panel is filled up with zeros.
constexpr int64_t kGroup = 32;
constexpr int64_t kCodeBytes = kGroup * kPanelOutputs;
constexpr int64_t kGroupBytes =
    kCodeBytes + kPanelOutputs * static_cast<int64_t>(sizeof(float));
}  // namespace tarn::testing
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

class Int8Panel {
 public:
  static constexpr int64_t kLines = 2;  // 72 bytes an input
  static constexpr bool kIsFloat = false;

  Int8Panel(const WeightMatrix& w, int64_t p) : panel_(w.Panel(p)) {}
  HWY_INLINE Int8Panel From(int64_t input, int64_t output) const {
    Int8Panel moved = *this;
    moved.input_ += input;
    moved.output_ += output;
    return moved;
  }
  HWY_INLINE const void* Address() const { return Codes(input_, output_); }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    const hn::Rebind<int8_t, DF> d8;
    input += input_;
    output += output_;
    const auto* scales = reinterpret_cast<const float*>(
        panel_ + input / testing::kGroup * testing::kGroupBytes +
        testing::kCodeBytes);
    const auto codes = hn::PromoteTo(
        DI(),
        hn::LoadU(d8, reinterpret_cast<const int8_t*>(Codes(input, output))));
    return hn::Mul(hn::ConvertTo(d, codes), hn::LoadU(d, scales + output));
  }

 private:
  HWY_INLINE const uint8_t* Codes(int64_t input, int64_t output) const {
    return panel_ + input / testing::kGroup * testing::kGroupBytes +
           input % testing::kGroup * kPanelOutputs + output;
  }
  const uint8_t* panel_;
  int64_t input_ = 0, output_ = 0;
};

static void MultiplyInt8(const PanelTask& task) {
  MultiplyPanels<Int8Panel>(task);
}
static void MultiplyInt8Row(const RowPanels& task) {
  MultiplyRow<Int8Panel>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyInt8);
HWY_EXPORT(MultiplyInt8Row);

namespace testing {
namespace {

int64_t GroupsOf(int64_t inputs) { return (inputs + kGroup - 1) / kGroup; }

struct RoundedGroup {
  float scale;
  int8_t codes[kGroup];
};

RoundedGroup RoundGroup(const float* weights, int64_t count) {
  RoundedGroup group = {0, {}};
  for (int64_t i = 0; i < count; ++i) {
    group.scale = std::max(group.scale, std::fabs(weights[i]) / 127);
  }
  for (int64_t i = 0; i < count && group.scale > 0; ++i) {
    group.codes[i] = static_cast<int8_t>(
        std::clamp(std::lround(weights[i] / group.scale), -127l, 127l));
  }
  return group;
}

void Pack(const float* weights, int64_t rows, int64_t inputs, int64_t column,
          uint8_t* panel) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < GroupsOf(inputs); ++g) {
      const int64_t count = std::min(kGroup, inputs - g * kGroup);
      const RoundedGroup group =
          RoundGroup(weights + r * inputs + g * kGroup, count);
      uint8_t* to = panel + g * kGroupBytes;
      for (int64_t i = 0; i < count; ++i) {
        to[i * kPanelOutputs + column + r] =
            static_cast<uint8_t>(group.codes[i]);
      }
      reinterpret_cast<float*>(to + kCodeBytes)[column + r] = group.scale;
    }
  }
}

void Read(const uint8_t* panel, int64_t inputs, int64_t column, float* out) {
  for (int64_t k = 0; k < inputs; ++k) {
    const uint8_t* group = panel + k / kGroup * kGroupBytes;
    const auto code =
        static_cast<int8_t>(group[k % kGroup * kPanelOutputs + column]);
    out[k] = reinterpret_cast<const float*>(group + kCodeBytes)[column] *
             static_cast<float>(code);
  }
}

}  // namespace

const WeightFormat kInt8Groups = {
    .name = "int8-groups",
    .id = 1000,
    .panel_bytes =
        [](int64_t inputs) { return GroupsOf(inputs) * kGroupBytes; },
    .pack = Pack,
    .read = Read,
    .multiply =
        [](const PanelTask& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyInt8)
          (task);
        },
    .multiply_row =
        [](const RowPanels& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyInt8Row)(task);
        },
};

std::vector<float> RoundedToInt8Groups(const std::vector<float>& weights,
                                       int64_t rows, int64_t inputs) {
  std::vector<float> rounded;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inputs; k += kGroup) {
      const int64_t count = std::min(kGroup, inputs - k);
      const RoundedGroup group =
          RoundGroup(weights.data() + r * inputs + k, count);
      for (int64_t i = 0; i < count; ++i) {
        rounded.push_back(group.scale * static_cast<float>(group.codes[i]));
      }
    }
  }
  return rounded;
}

}  // namespace testing
}  // namespace tarn
#endif  // HWY_ONCE
