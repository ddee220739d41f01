// The panel loader of groups for products in float32 (product-inl.h): weights
// widened as GroupValue does.

#if defined(TARN_KERNELS_MATMUL_GROUP_EXACT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_EXACT_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_EXACT_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_EXACT_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/matmul/formats/group_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

template <int kBits, bool kMinimum>
class GroupPanel {
 public:
  static constexpr int64_t kLines = 1;  // 33 or 66 bytes an input, and more
  static constexpr bool kIsFloat = false;

  GroupPanel(const WeightMatrix& w, int64_t p) : panel_(w.Panel(p)) {
    const GroupScheme& scheme = *w.FormatAt(p).scheme;
    group_shift_ = std::countr_zero(static_cast<uint64_t>(scheme.group));
    group_bytes_ = GroupBytes(scheme);
    code_bytes_ = GroupCodeBytes(scheme);
  }
  HWY_INLINE GroupPanel From(int64_t input, int64_t output) const {
    GroupPanel moved = *this;
    moved.input_ += input;
    moved.output_ += output;
    return moved;
  }
  HWY_INLINE const void* Address() const {
    const int64_t in_group = input_ & ((int64_t{1} << group_shift_) - 1);
    return panel_ + (input_ >> group_shift_) * group_bytes_ +
           in_group / StripeInputs(kBits) * kStripeBytes;
  }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    input += input_;
    output += output_;
    const uint8_t* group = panel_ + (input >> group_shift_) * group_bytes_;
    const int64_t k = input & ((int64_t{1} << group_shift_) - 1);
    const VI stored =
        LoadCodes(group + k / StripeInputs(kBits) * kStripeBytes + output * 4);
    // Codes of one input are a byte of each lane, or half of one.
    int shift = static_cast<int>(k % 4) * 8;
    if (kBits == 4) shift += k % 8 < 4 ? 0 : 4;
    constexpr int kOffset = kBits == 8 ? kByteOffset : (kMinimum ? 0 : 8);
    const VI code = hn::Sub(hn::And(hn::ShiftRightSame(stored, shift),
                                    hn::Set(DI(), (1 << kBits) - 1)),
                            hn::Set(DI(), kOffset));
    const uint8_t* scales = group + code_bytes_ + output * 2;
    const VF value = hn::Mul(LoadScales(scales), hn::ConvertTo(d, code));
    if constexpr (!kMinimum) return value;
    return hn::Add(value, LoadScales(scales + 2 * kPanel));
  }

 private:
  const uint8_t* panel_;
  int64_t group_bytes_, code_bytes_;
  int64_t input_ = 0, output_ = 0;
  int group_shift_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_EXACT_INL_H_
