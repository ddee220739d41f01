// Benchmark cases of decay_gate, decay_gate_forward and decay_gate_gradient:
// rows=4096 width=1024 dtype=f32 form=softplus, log_sigmoid, bounded,
// exponential or sigmoid. FLOP count one operation per element; bytes bound it.
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/decay_gate/decay_gate.h"

namespace tarn::bench {
namespace {

GateForm GateFormOf(const std::string& name) {
  for (const GateFormName& row : kGateFormNames) {
    if (name == row.name) return row.form;
  }
  throw ArgumentError("bench: form", "a form of decay_gate.h", name);
}

class DecayGateCase : public Case {
 public:
  DecayGateCase(Params& params, int) {
    call_.rows = params.Int("rows", 4096);
    call_.gate.count = call_.stride = params.Int("width", 1024);
    call_.dtype = params.Type("dtype");
    call_.gate.form = GateFormOf(params.Text("form", "softplus"));
    x_ = Values(Count(), call_.dtype, 1);
    gates_ = Values(Count(), DType::kF32, 2);
    shared_ = Values(call_.gate.count, DType::kF32, 3);
    for (int64_t i = 0; i < call_.gate.count; ++i) {  // bounds are positive
      shared_.f32()[i] = 0.5f + 0.25f * shared_.f32()[i];
    }
    call_.x = x_.data();
    call_.gate.bias = shared_.f32();
    if (TakesRates(call_.gate.form)) call_.gate.rates = shared_.f32();
    if (call_.gate.form == GateForm::kBounded) {
      keys_ = Values(Count(), call_.dtype, 4);
    }
    CountPass(Count(), 1, 2, call_.dtype);
  }
  void Run(Executor& executor) override {
    DecayGateForward(call_, gates_.f32(), Keys(), executor);
  }

 protected:
  int64_t Count() const { return call_.rows * call_.gate.count; }
  void* Keys() {
    return call_.gate.form == GateForm::kBounded ? keys_.data() : nullptr;
  }

  DecayGateCall call_;
  Values x_, gates_, shared_, keys_;
};

class DecayGateGradientCase final : public DecayGateCase {
 public:
  DecayGateGradientCase(Params& params, int threads)
      : DecayGateCase(params, threads),
        grad_x_(Count(), call_.dtype, 5),
        sums_(2 * call_.gate.count, DType::kF32, 6),
        workspace_(static_cast<int64_t>(DecayGateGradientBytes(call_))) {
    CountPass(Count(), 1, 3, call_.dtype);
  }
  void Run(Executor& executor) override {
    DecayGateGradients g;
    g.grad_gates = gates_.f32();
    g.grad_second = Keys();
    g.grad_x = grad_x_.data();
    g.grad_bias = sums_.f32();
    if (TakesRates(call_.gate.form)) {
      g.grad_log_rates = sums_.f32() + call_.gate.count;
    }
    DecayGateBackward(call_, g, executor, workspace_.data());
  }

 private:
  Values grad_x_, sums_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterDecayGate(Registry& registry) {
  registry.push_back({"decay_gate_forward", NewCase<DecayGateCase>});
  registry.push_back({"decay_gate_gradient", NewCase<DecayGateGradientCase>});
}

}  // namespace tarn::bench
