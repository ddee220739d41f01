// bfloat16, rounded to nearest even when packed: 128 bytes for each input of a
// panel. Products widen it exactly and accumulate in float32.
#include "core/half.h"
#include "kernels/matmul/formats/elements.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/bf16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

class BF16Panel {
 public:
  static constexpr int64_t kLines = 2;
  static constexpr bool kIsFloat = false;

  BF16Panel(const WeightMatrix& w, int64_t p)
      : at_(reinterpret_cast<const uint16_t*>(w.Panel(p))) {}
  HWY_INLINE BF16Panel From(int64_t input, int64_t output) const {
    return BF16Panel(at_ + input * kPanelOutputs + output);
  }
  HWY_INLINE const void* Address() const { return at_; }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    return LoadVector<DType::kBF16>(d, at_ + input * kPanelOutputs + output);
  }

 private:
  explicit BF16Panel(const uint16_t* at) : at_(at) {}
  const uint16_t* at_;  // [inputs][kPanelOutputs]
};

// Rows of halves as columns of a panel, eight by eight.
static void TransposeHalves(const uint8_t* rows_at, int64_t rows,
                            int64_t inputs, int64_t column, uint8_t* panel) {
  const auto* from = reinterpret_cast<const uint16_t*>(rows_at);
  auto* to = reinterpret_cast<uint16_t*>(panel) + column;
  int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<uint16_t> d;
  using V = hn::Vec<decltype(d)>;
  for (; done + 8 <= rows; done += 8) {
    int64_t k = 0;
    for (; k + 8 <= inputs; k += 8) {
      V a[8], b[8];
      for (int64_t i = 0; i < 8; ++i) {
        a[i] = hn::LoadU(d, from + (done + i) * inputs + k);
      }
      // Three rounds of pairs (i, i + 4) are the transpose.
      const auto pairs = [&](const V* x, V* y) HWY_ATTR {
        for (int i = 0; i < 4; ++i) {
          y[2 * i] = hn::InterleaveLower(d, x[i], x[i + 4]);
          y[2 * i + 1] = hn::InterleaveUpper(d, x[i], x[i + 4]);
        }
      };
      pairs(a, b);
      pairs(b, a);
      pairs(a, b);
      for (int64_t i = 0; i < 8; ++i) {
        hn::StoreU(b[i], d, to + (k + i) * kPanelOutputs + done);
      }
    }
    for (; k < inputs; ++k) {
      for (int64_t i = done; i < done + 8; ++i) {
        to[k * kPanelOutputs + i] = from[i * inputs + k];
      }
    }
  }
#endif
  for (; done < rows; ++done) {
    for (int64_t k = 0; k < inputs; ++k) {
      to[k * kPanelOutputs + done] = from[done * inputs + k];
    }
  }
}

static void MultiplyBF16(const PanelTask& task) {
  MultiplyPanels<BF16Panel>(task);
}
static void MultiplyBF16Row(const RowPanels& task) {
  MultiplyRow<BF16Panel>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(TransposeHalves);
HWY_EXPORT(MultiplyBF16);
HWY_EXPORT(MultiplyBF16Row);

const WeightFormat kBF16Weights = {
    .name = "bf16",
    .id = 1,
    .panel_bytes = ElementPanelBytes<uint16_t>,
    .pack =
        [](const float* weights, int64_t rows, int64_t inputs, int64_t column,
           uint8_t* panel) {
          PackElements<uint16_t>(weights, rows, inputs, column, panel,
                                 F32ToBF16);
        },
    .read =
        [](const uint8_t* panel, int64_t inputs, int64_t column, float* out) {
          ReadElements<uint16_t>(panel, inputs, column, out, BF16ToF32);
        },
    .multiply =
        [](const PanelTask& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyBF16)
          (task);
        },
    .multiply_row =
        [](const RowPanels& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyBF16Row)(task);
        },
    .number = DType::kBF16,
    .pack_blocks =
        [](const uint8_t* numbers, int64_t rows, int64_t inputs, int64_t column,
           uint8_t* panel) {
          HWY_DYNAMIC_DISPATCH(TransposeHalves)
          (numbers, rows, inputs, column, panel);
        },
};

}  // namespace tarn
#endif  // HWY_ONCE
