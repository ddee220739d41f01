// Benchmark case of the product of dense matrices: rows=1024 columns=512
// depth=128 form=nt (x W^T), nn (dy W) or tn (dy^T x).
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/gemm/gemm.h"

namespace tarn::bench {
namespace {

class GemmCase final : public Case {
 public:
  GemmCase(Params& params, int)
      : rows_(params.Int("rows", 1024)),
        columns_(params.Int("columns", 512)),
        depth_(params.Int("depth", 128)),
        form_(params.Text("form", "nt")),
        a_(rows_ * depth_, DType::kF32),
        b_(depth_ * columns_, DType::kF32, 2),
        c_(rows_ * columns_, DType::kF32, 3) {
    if (form_ != "nt" && form_ != "nn" && form_ != "tn") {
      throw ArgumentError("bench: form", "nt, nn or tn", form_);
    }
    const double rows = static_cast<double>(rows_);
    const double columns = static_cast<double>(columns_);
    const double depth = static_cast<double>(depth_);
    work_.useful_flop = work_.executed_flop = 2 * rows * columns * depth;
    work_.bytes = 4 * (rows * depth + depth * columns + rows * columns);
  }
  void Run(Executor& executor) override {
    const bool a = form_[0] == 't', b = form_[1] == 't';
    const GemmProblem problem = {rows_,
                                 columns_,
                                 depth_,
                                 {a_.f32(), a ? rows_ : depth_, a},
                                 {b_.f32(), b ? depth_ : columns_, b},
                                 c_.f32(),
                                 columns_};
    const int64_t floats = GemmWorkspaceFloats(executor);
    if (workspace_.size() < floats) workspace_ = AlignedBuffer<float>(floats);
    Gemm(problem, workspace_.data(), executor);
  }

 private:
  int64_t rows_, columns_, depth_;
  std::string form_;
  Values a_, b_, c_;
  AlignedBuffer<float> workspace_;
};

}  // namespace

void RegisterGemm(Registry& registry) {
  registry.push_back({"gemm", [](Params& params, int threads) {
                        return std::unique_ptr<Case>(
                            new GemmCase(params, threads));
                      }});
}

}  // namespace tarn::bench
