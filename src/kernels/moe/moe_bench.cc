// Benchmark cases of a mixture of experts and its gradient: tokens=1024
// top_k=2 experts=8 d_model=256 d_ff=512, gated. Useful FLOP are the products
// of the chosen experts; bytes are the rows and every expert's matrices once.
#include "kernels/bench_case.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/router.h"

namespace tarn::bench {
namespace {

class ExpertsPass : public Case {
 protected:
  explicit ExpertsPass(Params& params, bool gradient) : gradient_(gradient) {
    p_.tokens = params.Int("tokens", 1024);
    p_.top_k = params.Int("top_k", 2);
    p_.experts = params.Int("experts", 8);
    p_.d_model = params.Int("d_model", 256);
    p_.d_ff = params.Int("d_ff", 512);
    const int64_t rows = p_.tokens * p_.top_k;
    const int64_t matrix = p_.experts * p_.d_ff * p_.d_model;
    x_ = Values(p_.tokens * p_.d_model, DType::kF32);
    logits_ = Values(p_.tokens * p_.experts, DType::kF32, 2);
    weight1_ = Values(matrix, DType::kF32, 3);
    weight2_ = Values(matrix, DType::kF32, 4);
    weight3_ = Values(matrix, DType::kF32, 5);
    y_ = Values(p_.tokens * p_.d_model, DType::kF32, 6);
    weights_ = Values(rows, DType::kF32);
    product1_ = Values(rows * p_.d_ff, DType::kF32);
    product3_ = Values(rows * p_.d_ff, DType::kF32);
    chosen_.resize(rows);
    SerialExecutor serial;
    router_.top_k = p_.top_k;
    RouterForward(router_, p_.tokens, p_.experts, logits_.f32(), chosen_.data(),
                  weights_.f32(), serial);
    p_.x = x_.f32();
    p_.chosen = chosen_.data();
    p_.weights = weights_.f32();
    p_.weight1 = weight1_.f32();
    p_.weight2 = weight2_.f32();
    p_.weight3 = weight3_.f32();
    indices_.resize(ExpertsWorkspaceIndices(p_));
    const double products = 6.0 * static_cast<double>(rows * p_.d_ff) *
                            static_cast<double>(p_.d_model);
    work_.useful_flop = work_.executed_flop = products * (gradient ? 2 : 1);
    work_.bytes = 4.0 *
                  (3.0 * static_cast<double>(matrix) +
                   2.0 * static_cast<double>(p_.tokens * p_.d_model)) *
                  (gradient ? 2 : 1);
  }

  float* Workspace(Executor& executor) {
    const int64_t floats = ExpertsWorkspaceFloats(p_, executor, gradient_);
    if (workspace_.size() < floats) workspace_ = AlignedBuffer<float>(floats);
    return workspace_.data();
  }

  bool gradient_;
  ExpertsProblem p_;
  RouterOptions router_;
  Values x_, logits_, weight1_, weight2_, weight3_, y_;
  Values weights_, product1_, product3_;
  std::vector<int64_t> chosen_, indices_;
  AlignedBuffer<float> workspace_;
};

class ExpertsForwardCase final : public ExpertsPass {
 public:
  ExpertsForwardCase(Params& params, int) : ExpertsPass(params, false) {}
  void Run(Executor& executor) override {
    float* workspace = Workspace(executor);
    RouterForward(router_, p_.tokens, p_.experts, logits_.f32(), chosen_.data(),
                  weights_.f32(), executor);
    ExpertsForward(p_, y_.f32(), product1_.f32(), product3_.f32(), workspace,
                   indices_.data(), executor);
  }
};

class ExpertsGradientCase final : public ExpertsPass {
 public:
  ExpertsGradientCase(Params& params, int) : ExpertsPass(params, true) {
    const int64_t matrix = p_.experts * p_.d_ff * p_.d_model;
    for (Values* grad : {&grad1_, &grad2_, &grad3_}) {
      *grad = Values(matrix, DType::kF32);
    }
    grad_x_ = Values(p_.tokens * p_.d_model, DType::kF32);
    grad_weights_ = Values(p_.tokens * p_.top_k, DType::kF32);
    grad_logits_ = Values(p_.tokens * p_.experts, DType::kF32);
  }
  void Run(Executor& executor) override {
    ExpertsBackward(
        p_,
        {y_.f32(), product1_.f32(), product3_.f32(), grad_x_.f32(),
         grad_weights_.f32(), grad1_.f32(), grad2_.f32(), grad3_.f32()},
        Workspace(executor), indices_.data(), executor);
    RouterBackward(router_, p_.tokens, p_.experts, logits_.f32(),
                   chosen_.data(), grad_weights_.f32(), grad_logits_.f32(),
                   executor);
  }

 private:
  Values grad1_, grad2_, grad3_, grad_x_, grad_weights_, grad_logits_;
};

}  // namespace

void RegisterMoe(Registry& registry) {
  registry.push_back({"moe_forward", NewCase<ExpertsForwardCase>});
  registry.push_back({"moe_gradient", NewCase<ExpertsGradientCase>});
}

}  // namespace tarn::bench
