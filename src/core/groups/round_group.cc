#include "core/groups/round_group.h"

#include <algorithm>
#include <cmath>

namespace tarn {
namespace {

constexpr uint16_t kNaN = 0x7E00;  // float16
constexpr float kLargestScale = 65504.0f;
constexpr int kCandidates = 17;
constexpr float kNarrowest = 0.65f;
constexpr int kRefits = 2;

// A group in lanes: sums are taken in a fixed order that compilers vectorise.
constexpr int64_t kLanes = 16;

struct Group {
  float numbers[kMostGroup] = {};  // zeros after the last
  float inside[kMostGroup] = {};   // 1 for a number, 0 after the last
  int64_t count = 0, padded = 0;
};

struct Sums {
  float codes = 0, squares = 0, products = 0;  // of q, q q, q w
};

float Total(const float* lanes) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

// Nearest integer, ties to even, |x| < 2^22.
float Nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// The codes q = (w - minimum) / scale as numbers in [low, high].
float CodeOf(float w, float minimum, float inverse, float low, float high) {
  return Nearest(std::min(std::max((w - minimum) * inverse, low), high));
}

Sums SumsOf(const Group& group, float scale, float minimum, float low,
            float high) {
  const float inverse = 1 / scale;
  float codes[kLanes] = {}, squares[kLanes] = {}, products[kLanes] = {};
  for (int64_t i = 0; i < group.padded; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float w = group.numbers[i + j];
      const float q =
          CodeOf(w, minimum, inverse, low, high) * group.inside[i + j];
      codes[j] += q;
      squares[j] += q * q;
      products[j] += q * w;
    }
  }
  return {Total(codes), Total(squares), Total(products)};
}

// sum (w - d q - m)^2, with the nearest codes for d and m.
float ErrorOf(const Group& group, float scale, float minimum, float low,
              float high) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float errors[kLanes] = {};
  for (int64_t i = 0; i < group.padded; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float w = group.numbers[i + j];
      const float q = CodeOf(w, minimum, inverse, low, high);
      const float e = (w - (q * scale + minimum)) * group.inside[i + j];
      errors[j] += e * e;
    }
  }
  return Total(errors);
}

// The float16 scales next to some, with the error of each.
class BestFit {
 public:
  BestFit(const Group& group, float low, float high)
      : group_(group), low_(low), high_(high) {}

  void Try(uint16_t scale, uint16_t minimum) {
    if ((scale & 0x7FFF) >= 0x7C00 || (minimum & 0x7FFF) >= 0x7C00) return;
    const float error =
        ErrorOf(group_, F16ToF32(scale), F16ToF32(minimum), low_, high_);
    if (error < error_) {
      error_ = error;
      fit_ = {scale, minimum};
    }
  }
  // Neighbours: the next magnitude in both directions. Among subnormal numbers
  // they differ much, and codes that do not reach the largest number cost more
  // than a coarser scale.
  void TryAround(uint16_t scale, uint16_t minimum) {
    Try(scale, minimum);
    Try(static_cast<uint16_t>(scale + 1), minimum);
    if ((scale & 0x7FFF) > 0) Try(static_cast<uint16_t>(scale - 1), minimum);
  }
  GroupFit fit() const { return fit_; }

 private:
  const Group& group_;
  const float low_, high_;
  float error_ = INFINITY;
  GroupFit fit_ = {kNaN, 0};
};

float ShareOf(int candidate) {
  return 1 -
         (1 - kNarrowest) / (kCandidates - 1) * static_cast<float>(candidate);
}

// `widest`: the number of the largest magnitude.
GroupFit FitScale(const Group& group, const GroupScheme& scheme, float widest) {
  const bool four = scheme.bits == 4;
  const float low = four ? -8.0f : -127.0f, high = four ? 7.0f : 127.0f;
  const float range = four ? widest / -8 : std::fabs(widest) / 127;
  if (std::isinf(F16ToF32(F32ToF16(range)))) return {kNaN, 0};
  BestFit best(group, low, high);
  best.TryAround(F32ToF16(range), 0);
  if (!four || F32ToF16(range) << 1 == 0) return best.fit();
  // With the least squares of its codes a scale leaves sum w^2 - (sum q w)^2 /
  // sum q^2.
  float gain = 0, scale = range;
  for (int i = 0; i < kCandidates; ++i) {
    const Sums sums = SumsOf(group, range * ShareOf(i), 0, low, high);
    if (sums.squares > 0 &&
        sums.products * sums.products > gain * sums.squares) {
      gain = sums.products * sums.products / sums.squares;
      scale = sums.products / sums.squares;
    }
  }
  for (int i = 0; i < kRefits; ++i) {
    const Sums sums = SumsOf(group, scale, 0, low, high);
    if (sums.squares > 0) scale = sums.products / sums.squares;
  }
  best.TryAround(F32ToF16(scale), 0);
  return best.fit();
}

// q d + m for q of 0..15. The numbers are taken from `smallest` on, which keeps
// the sums of a group far from zero exact.
GroupFit FitRange(Group& group, float smallest, float largest) {
  const float low = 0, high = 15, count = static_cast<float>(group.count);
  const float width = largest - smallest, range = width / high;
  for (const float x : {range, smallest}) {
    if (std::isinf(F16ToF32(F32ToF16(x)))) return {kNaN, 0};
  }
  BestFit best(group, low, high);
  best.TryAround(F32ToF16(range), F32ToF16(smallest));
  if (F32ToF16(range) == 0) {
    best.Try(0, F32ToF16(smallest + width / 2));
    return best.fit();
  }
  Group moved = group;
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < group.padded; ++i) {
    moved.numbers[i] = (moved.numbers[i] - smallest) * moved.inside[i];
    lanes[i % kLanes] += moved.numbers[i];
  }
  const float sum = Total(lanes);
  float gain = -1, scale = range, minimum = 0;
  const auto consider = [&](float with, float from, bool always) {
    const Sums sums = SumsOf(moved, with, from, low, high);
    const float spread = count * sums.squares - sums.codes * sums.codes;
    const float shared = count * sums.products - sums.codes * sum;
    if (spread <= 0 || shared <= 0) return;
    if (always || shared * shared / spread > gain) {
      gain = shared * shared / spread;
      scale = shared / spread;
      minimum = (sum - scale * sums.codes) / count;
    }
  };
  for (int i = 0; i < kCandidates; ++i) {
    const float share = ShareOf(i);
    consider(range * share, width * (1 - share) / 2, false);
  }
  for (int i = 0; i < kRefits; ++i) consider(scale, minimum, true);
  best.TryAround(F32ToF16(scale), F32ToF16(minimum + smallest));
  return best.fit();
}

}  // namespace

GroupFit FitGroup(const float* numbers, int64_t count,
                  const GroupScheme& scheme) {
  Group group;
  group.count = count;
  group.padded = (count + kLanes - 1) / kLanes * kLanes;
  float widest = 0, smallest = numbers[0], largest = numbers[0];
  for (int64_t i = 0; i < count; ++i) {
    const float w = numbers[i];
    if (!std::isfinite(w)) return {kNaN, 0};
    if (std::fabs(w) > std::fabs(widest)) widest = w;
    smallest = std::min(smallest, w);
    largest = std::max(largest, w);
    group.numbers[i] = w;
    group.inside[i] = 1;
  }
  // Squares of larger numbers would overflow, too.
  if (std::fabs(widest) > 127 * kLargestScale) return {kNaN, 0};
  return scheme.minimum ? FitRange(group, smallest, largest)
                        : FitScale(group, scheme, widest);
}

int NearestCode(const GroupScheme& scheme, float scale, float minimum,
                float number) {
  const bool minus = scheme.bits == 8;
  const int offset = scheme.Offset();
  const float low = minus ? -127.0f : -static_cast<float>(offset);
  const float high = static_cast<float>(scheme.HighestCode() - offset);
  // False for NaN too.
  if (!(scale != 0) || std::isnan(scale) || std::isnan(number)) return offset;
  const float code = (scheme.minimum ? number - minimum : number) / scale;
  return static_cast<int>(Nearest(std::min(std::max(code, low), high))) +
         offset;
}

void StartGroup(const GroupScheme& scheme, GroupFit fit, uint8_t* block) {
  std::memcpy(block, &fit.scale, sizeof(fit.scale));
  if (scheme.minimum) {
    std::memcpy(block + sizeof(fit.scale), &fit.minimum, sizeof(fit.minimum));
  }
  std::memset(block + scheme.HeadBytes(), scheme.Offset() * 17,
              static_cast<size_t>(scheme.BlockBytes() - scheme.HeadBytes()));
}

bool RoundGroup(const float* numbers, int64_t count, const GroupScheme& scheme,
                uint8_t* block) {
  const GroupFit fit = FitGroup(numbers, count, scheme);
  StartGroup(scheme, fit, block);
  const float scale = F16ToF32(fit.scale), minimum = F16ToF32(fit.minimum);
  if (std::isnan(scale)) return false;
  for (int64_t i = 0; i < count; ++i) {
    SetGroupCode(scheme, i, NearestCode(scheme, scale, minimum, numbers[i]),
                 block);
  }
  return true;
}

}  // namespace tarn
