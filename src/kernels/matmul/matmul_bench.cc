// Benchmark case of the runtime's matrix product: rows=1 inputs=1024
// outputs=1024 dtype=f32 (of the weights: a weight format) finish=store (relu,
// gelu, add, swiglu) exact=0 (1: products in float32) byte_dot=1 (0: without
// AVX-512 VNNI).
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/matmul/formats/byte_dot.h"
#include "kernels/matmul/matmul.h"

namespace tarn::bench {
namespace {

MatMulFinish FinishNamed(const std::string& name) {
  if (name == "store") return MatMulFinish::kStore;
  if (name == "relu") return MatMulFinish::kRelu;
  if (name == "gelu") return MatMulFinish::kGelu;
  if (name == "gelu-tanh") return MatMulFinish::kGeluTanh;
  if (name == "add") return MatMulFinish::kAdd;
  if (name == "swiglu") return MatMulFinish::kSwiglu;
  throw ArgumentError("bench: finish", "store, relu, gelu, add or swiglu",
                      name);
}

const WeightFormat& FormatNamed(const std::string& name, bool exact) {
  std::vector<const WeightFormat*> formats = {&kF32Weights, &kBF16Weights};
  for (const WeightFormat* format : GroupFormats()) formats.push_back(format);
  std::string words;
  for (const WeightFormat* format : formats) {
    if (name == format->name) return exact ? ExactFormat(*format) : *format;
    words += StrCat(words.empty() ? "" : " or ", format->name);
  }
  throw ArgumentError("bench: dtype", words, name);
}

class MatMul final : public Case {
 public:
  MatMul(Params& params, int)
      : rows_(params.Int("rows", 1)),
        inputs_(params.Int("inputs", 1024)),
        outputs_(params.Int("outputs", 1024)),
        finish_(FinishNamed(params.Text("finish", "store"))),
        weights_(outputs_, inputs_,
                 FormatNamed(params.Text("dtype", "f32"),
                             params.Int("exact", 0, 0) != 0)),
        x_(rows_ * Stride(inputs_), DType::kF32, 2),
        y_(rows_ * Stride(outputs_), DType::kF32, 3) {
    AllowByteDot(params.Int("byte_dot", 1, 0) != 0);
    Values row_major(outputs_ * inputs_, DType::kF32);
    weights_.SetRows(0, outputs_, row_major.f32(), nullptr);
    const double rows = static_cast<double>(rows_);
    const double in = static_cast<double>(inputs_);
    const double out = static_cast<double>(outputs_);
    work_.useful_flop = work_.executed_flop = 2 * rows * in * out;
    work_.bytes = static_cast<double>(weights_.bytes()) + rows * 4 * (in + out);
  }
  void Run(Executor& executor) override {
    PackedMatMul(x_.f32(), Stride(inputs_), rows_, weights_,
                 {y_.f32(), Stride(outputs_)}, executor, finish_);
  }

 private:
  // The row stride of the runtime: no multiple of 1024 floats.
  static int64_t Stride(int64_t width) { return width + 16; }

  int64_t rows_, inputs_, outputs_;
  MatMulFinish finish_;
  WeightMatrix weights_;
  Values x_, y_;
};

}  // namespace

void RegisterMatMul(Registry& registry) {
  registry.push_back({"matmul", NewCase<MatMul>});
}

}  // namespace tarn::bench
