#include "weights/quantised/group_encodings.h"

#include <algorithm>

#include "core/error.h"
#include "core/groups/round_group.h"
#include "core/text.h"

namespace tarn {
namespace {

template <int kBits, int64_t kGroup, bool kMinimum>
constexpr GroupScheme kScheme = {kBits, kGroup, kMinimum};

// f(the numbers of each block, how many, the block).
template <typename Number, typename Byte, typename F>
void ForBlocks(const GroupScheme& scheme, Number* numbers, int64_t count,
               Byte* blocks, const F& f) {
  for (int64_t i = 0; i < count; i += scheme.group) {
    f(numbers + i, std::min(scheme.group, count - i), blocks);
    blocks += scheme.BlockBytes();
  }
}

template <const GroupScheme& scheme>
void Widen(const uint8_t* from, int64_t numbers, float* to) {
  ForBlocks(scheme, to, numbers, from,
            [](float* out, int64_t count, const uint8_t* block) {
              DecodeGroup(scheme, block, count, out);
            });
}

template <const GroupScheme& scheme>
void Narrow(const float* from, int64_t numbers, uint8_t* to) {
  ForBlocks(scheme, from, numbers, to,
            [](const float* in, int64_t count, uint8_t* block) {
              RoundGroup(in, count, scheme, block);
            });
}

template <const GroupScheme& scheme>
Encoding Made(const char* name) {
  return {name,          scheme.group,   scheme.BlockBytes(),
          Widen<scheme>, Narrow<scheme>, &scheme};
}

}  // namespace

std::span<const Encoding> GroupEncodings() {
  static const Encoding all[] = {
      Made<kScheme<8, 32, false>>("I8_32"),
      Made<kScheme<8, 64, false>>("I8_64"),
      Made<kScheme<8, 128, false>>("I8_128"),
      Made<kScheme<4, 32, false>>("I4_32"),
      Made<kScheme<4, 64, false>>("I4_64"),
      Made<kScheme<4, 128, false>>("I4_128"),
      Made<kScheme<4, 32, true>>("I4M_32"),
      Made<kScheme<4, 64, true>>("I4M_64"),
      Made<kScheme<4, 128, true>>("I4M_128"),
  };
  return all;
}

const Encoding& GroupEncoding(const GroupScheme& scheme) {
  for (const Encoding& encoding : GroupEncodings()) {
    if (*encoding.scheme == scheme) return encoding;
  }
  throw ArgumentError(
      "group scheme",
      "8 bits, or 4 bits with or without a minimum, in groups "
      "of 32, 64 or 128",
      StrCat(scheme.bits, " bits, ", scheme.minimum ? "a minimum, " : "",
             "groups of ", scheme.group));
}

std::optional<GroupScheme> FittingScheme(GroupScheme scheme,
                                         const std::vector<int64_t>& shape) {
  std::optional<GroupScheme> best;
  constexpr int64_t kLeastGroup = 32;
  for (; shape.size() > 1 && scheme.group >= kLeastGroup; scheme.group /= 2) {
    const int64_t columns = shape.back();
    if (shape.size() > 2 && columns % scheme.group != 0) continue;
    if (!best || scheme.RowBytes(columns) < best->RowBytes(columns)) {
      best = scheme;
    }
  }
  return best;
}

const Encoding* FindGroupEncoding(std::string_view name) {
  for (const Encoding& encoding : GroupEncodings()) {
    if (name == encoding.name) return &encoding;
  }
  return nullptr;
}

}  // namespace tarn
