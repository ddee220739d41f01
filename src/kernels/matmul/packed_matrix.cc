#include "kernels/matmul/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"

namespace tarn {
namespace {

float WidenBF16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

// Columns of W taken at a time: 64 rows x 16 floats stay in L1 while they are
// transposed.
constexpr int64_t kPackBlock = 16;

// rows of W (at most kPanel), [rows, inputs], into columns [column, ...) of a
// panel.
template <typename T, typename Narrow>
void PackPanel(const float* weights, int64_t rows, int64_t inputs,
               int64_t column, T* panel, const Narrow& narrow) {
  for (int64_t begin = 0; begin < inputs; begin += kPackBlock) {
    const int64_t end = std::min(begin + kPackBlock, inputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = begin; k < end; ++k) {
        panel[k * PackedMatrix::kPanel + column + r] =
            narrow(weights[r * inputs + k]);
      }
    }
  }
}

}  // namespace

uint16_t RoundToBF16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  // A NaN whose payload lies in the low half must not become an infinity.
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

uint8_t* WeightMemory::Take(int64_t bytes) {
  const int64_t rounded = (bytes + 63) / 64 * 64;
  if (bytes < 0 || rounded > block_.size() - used_) throw std::bad_alloc();
  uint8_t* taken = block_.data() + used_;
  used_ += rounded;
  return taken;
}

int64_t PackedMatrix::WeightBytes(int64_t outputs, int64_t inputs,
                                  DType dtype) {
  // A panel is a multiple of 64 bytes, so no bytes are lost between matrices.
  int64_t bytes;
  if (__builtin_mul_overflow((outputs + kPanel - 1) / kPanel * kPanel, inputs,
                             &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(DTypeBytes(dtype)),
                             &bytes)) {
    throw ShapeError("PackedMatrix: shape", "under 2^63 bytes",
                     ShapeText({outputs, inputs}));
  }
  return bytes;
}

PackedMatrix::PackedMatrix(int64_t outputs, int64_t inputs, DType dtype,
                           std::shared_ptr<WeightMemory> memory)
    : outputs_(outputs),
      inputs_(inputs),
      dtype_(dtype),
      memory_(std::move(memory)) {
  if (outputs < 1 || inputs < 1) {
    throw ShapeError("PackedMatrix: shape", "[outputs >= 1, inputs >= 1]",
                     ShapeText({outputs, inputs}));
  }
  if (dtype == DType::kF16) {
    throw DTypeError("PackedMatrix: dtype", "F32 or BF16", DTypeName(dtype));
  }
  const int64_t bytes = WeightBytes(outputs, inputs, dtype);
  if (memory_ == nullptr) memory_ = std::make_shared<WeightMemory>(bytes);
  weights_ = memory_->Take(bytes);
  bias_ = AlignedBuffer<float>(panels() * kPanel);
}

void PackedMatrix::SetRows(int64_t first, int64_t rows, const float* weights,
                           const float* bias) {
  if (first < 0 || rows < 0 || rows > outputs_ || first > outputs_ - rows) {
    throw ShapeError("PackedMatrix::SetRows: rows",
                     StrCat("a range in [0, ", outputs_, ")"),
                     StrCat(rows, " from ", first));
  }
  for (int64_t done = 0; done < rows;) {
    const int64_t output = first + done;
    const int64_t column = output % kPanel;
    const int64_t count = std::min(kPanel - column, rows - done);
    uint8_t* panel = weights_ + output / kPanel * PanelBytes();
    const float* from = weights + done * inputs_;
    if (dtype_ == DType::kF32) {
      PackPanel(from, count, inputs_, column, reinterpret_cast<float*>(panel),
                [](float x) { return x; });
    } else {
      PackPanel(from, count, inputs_, column,
                reinterpret_cast<uint16_t*>(panel), RoundToBF16);
    }
    done += count;
  }
  if (bias != nullptr) std::copy(bias, bias + rows, bias_.data() + first);
}

void PackedMatrix::ReadRow(int64_t output, float* out) const {
  const uint8_t* panel = Panel(output / kPanel);
  const int64_t column = output % kPanel;
  if (dtype_ == DType::kF32) {
    const float* from = reinterpret_cast<const float*>(panel) + column;
    for (int64_t k = 0; k < inputs_; ++k) out[k] = from[k * kPanel];
  } else {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(panel) + column;
    for (int64_t k = 0; k < inputs_; ++k) out[k] = WidenBF16(from[k * kPanel]);
  }
}

}  // namespace tarn
