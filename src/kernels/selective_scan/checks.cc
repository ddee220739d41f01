// Argument checks: everything here runs before any work, and allocates only
// when it throws.
#include <algorithm>

#include "core/error.h"
#include "kernels/selective_scan/blocks.h"
#include "kernels/sequence_checks.h"

namespace tarn {
namespace {
constexpr char kScan[] = "selective_scan";
}  // namespace

int64_t SelectiveScanCheckpoints(const SelectiveScanInputs& in) {
  return in.inputs.size[0] * (in.inputs.size[1] / kScanGroup);
}

int64_t SelectiveScanScratch(const SelectiveScanInputs& in, int workers) {
  const int64_t rows = in.inputs.size[0] * in.inputs.size[1];
  return workers * kScanPanels * ScanPanel(in) +
         ScanBlocks(in) * rows * 2 * in.states();
}

void CheckScanTensor(const TensorView& view, const TensorView& like,
                     const char* name) {
  const auto where = [&] { return StrCat(kScan, ": ", name); };
  if (!std::equal(view.size, view.size + 4, like.size)) {
    throw ShapeError(where(), ShapeText(like.Shape()), ShapeText(view.Shape()));
  }
  if (view.dtype != like.dtype) {
    throw DTypeError(where(), DTypeName(like.dtype), DTypeName(view.dtype));
  }
  if (view.data == nullptr && view.size[0] * view.size[1] != 0) {
    throw ArgumentError(where(), "data", "a null pointer");
  }
}

void CheckSelectiveScan(const SelectiveScanInputs& in, const TensorView& out) {
  CheckScanCall(in, out, "out");
}

void CheckScanCall(const SelectiveScanInputs& in, const TensorView& out,
                   const char* name) {
  const TensorView& x = in.inputs;
  if (x.size[0] < 0 || x.size[1] < 0 || x.size[2] != 1 || x.size[3] < 1) {
    throw ShapeError(StrCat(kScan, ": inputs"), "[B, T, 1, D] with D >= 1",
                     ShapeText(x.Shape()));
  }
  CheckScanTensor(x, x, "inputs");
  TensorView steps = in.steps;  // steps may need more digits
  if (steps.dtype == DType::kF32) steps.dtype = x.dtype;
  CheckScanTensor(steps, x, "steps");
  const int64_t states = in.keys.size[3];
  if (states < 1 || states > kMostScanStates) {
    throw ShapeError(StrCat(kScan, ": keys"),
                     StrCat("1 to ", kMostScanStates, " states"),
                     StrCat(states));
  }
  TensorView rows = in.keys;  // what they must be like
  std::copy_n(x.size, 3, rows.size);
  rows.dtype = x.dtype;
  CheckScanTensor(in.keys, rows, "keys");
  CheckScanTensor(in.queries, rows, "queries");
  if (in.rates == nullptr) {
    throw ArgumentError(StrCat(kScan, ": rates"), "data", "a null pointer");
  }
  CheckScanTensor(out, x, name);
  CheckSequences(kScan, "inputs", x, in.lengths, in.cu_seqlens, in.sequences);
}

}  // namespace tarn
