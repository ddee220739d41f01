// Benchmark cases of entry_forms, entry_forms_forward and entry_forms_gradient:
// rows=8192 width=1024 form=silu_gate (the names of entry_forms.h) dtype=f32.
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/entry_forms/entry_forms.h"

namespace tarn::bench {
namespace {

EntryForm EntryFormNamed(const std::string& name) {
  for (const EntryFormName& row : kEntryFormNames) {
    if (name == row.name) return row.form;
  }
  throw ArgumentError("bench: form", "a form of entry_forms", name);
}

class EntryFormCase : public Case {
 public:
  EntryFormCase(Params& params, int) {
    call_.rows = params.Int("rows", 8192);
    call_.width = params.Int("width", 1024);
    call_.form = EntryFormNamed(params.Text("form", "silu_gate"));
    call_.dtype = params.Type("dtype");
    call_.x = Take(x_, 1);
    if (TakesGated(call_.form)) call_.y = Take(y_, 2);
    if (TakesWeight(call_.form)) {
      weight_ = Values(call_.width, DType::kF32, 3);
      call_.weight = weight_.f32();
    }
    out_ = Take(output_, 4);
    Count(TakesGated(call_.form) ? 3 : 2);
  }
  void Run(Executor& executor) override {
    EntryFormForward(call_, out_, executor);
  }

 protected:
  EntryRows Take(Values& values, uint64_t seed) {
    values = Values(call_.rows * call_.width, call_.dtype, seed);
    return {values.data(), call_.width};
  }
  // Two operations an entry, as bytes bound the passes.
  void Count(double moved) {
    CountPass(call_.rows * call_.width, 2, moved, call_.dtype);
  }

  EntryFormCall call_;
  Values x_, y_, weight_, output_;
  EntryRows out_;
};

class EntryFormGradientCase final : public EntryFormCase {
 public:
  EntryFormGradientCase(Params& params, int threads)
      : EntryFormCase(params, threads) {
    const bool gated = TakesGated(call_.form);
    g_.grad_out = out_;
    g_.grad_x = Take(grad_x_, 5);
    if (gated) g_.grad_y = Take(grad_y_, 6);
    if (call_.weight != nullptr) {
      grad_weight_ = Values(call_.width, DType::kF32, 7);
      g_.grad_weight = grad_weight_.f32();
    }
    workspace_ = AlignedBuffer<uint8_t>(static_cast<int64_t>(
        EntryFormGradientBytes(call_, call_.weight != nullptr)));
    Count(gated ? 5 : 3);
  }
  void Run(Executor& executor) override {
    EntryFormBackward(call_, g_, executor, workspace_.data());
  }

 private:
  Values grad_x_, grad_y_, grad_weight_;
  EntryFormGradients g_;
  AlignedBuffer<uint8_t> workspace_;
};

}  // namespace

void RegisterEntryForms(Registry& registry) {
  registry.push_back({"entry_forms_forward", NewCase<EntryFormCase>});
  registry.push_back({"entry_forms_gradient", NewCase<EntryFormGradientCase>});
}

}  // namespace tarn::bench
