// Benchmark cases of the row functions of recurrent families: rows=4096
// width=1024, in decay_gates and unit_rows heads=8 width=128. decay_gates also
// takes form=softplus, log_sigmoid, bounded, exponential or sigmoid. FLOP count
// one operation per element; bytes bound these functions.
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/gate_rows/gate_rows.h"

namespace tarn::bench {
namespace {

using EntryFunction = void (*)(const float* x, int64_t width, float* y);

void Softplus(const float* x, int64_t width, float* y) {
  SoftplusRow(x, nullptr, width, y);
}

template <EntryFunction kFunction>
class Entries final : public Case {
 public:
  Entries(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        width_(params.Int("width", 1024)),
        x_(rows_ * width_, DType::kF32),
        y_(rows_ * width_, DType::kF32) {
    const double count = static_cast<double>(rows_ * width_);
    work_.useful_flop = work_.executed_flop = count;
    work_.bytes = count * 8;
  }
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      kFunction(x_.f32() + begin * width_, (end - begin) * width_,
                y_.f32() + begin * width_);
    });
  }

 private:
  int64_t rows_, width_;
  Values x_, y_;
};

class OfHeads : public Case {
 public:
  OfHeads(Params& params, int)
      : rows_(params.Int("rows", 4096)),
        heads_(params.Int("heads", 8)),
        width_(params.Int("width", 128)),
        x_(rows_ * heads_ * width_, DType::kF32) {
    const double count = static_cast<double>(rows_ * heads_ * width_);
    work_.useful_flop = work_.executed_flop = count;
    work_.bytes = count * 8;
  }

 protected:
  int64_t rows_, heads_, width_;
  Values x_;
};

class UnitRows final : public OfHeads {
 public:
  using OfHeads::OfHeads;
  void Run(Executor& executor) override {
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      UnitRow((end - begin) * heads_, width_, 1e-6f,
              x_.f32() + begin * heads_ * width_);
    });
  }
};

GateForm FormOf(const std::string& name) {
  const std::map<std::string, GateForm> forms = {
      {"softplus", GateForm::kSoftplus},
      {"log_sigmoid", GateForm::kLogSigmoid},
      {"bounded", GateForm::kBounded},
      {"exponential", GateForm::kExponential},
      {"sigmoid", GateForm::kSigmoid}};
  const auto found = forms.find(name);
  if (found != forms.end()) return found->second;
  throw ArgumentError("bench: form", "a form of gate_rows.h", name);
}

class DecayGates final : public OfHeads {
 public:
  DecayGates(Params& params, int threads)
      : OfHeads(params, threads),
        g_(rows_ * heads_ * width_, DType::kF32),
        rates_(heads_, DType::kF32, 2) {
    form_.form = FormOf(params.Text("form", "softplus"));
    form_.heads = heads_;
    form_.width = width_;
    form_.rates = rates_.f32();
    if (form_.form == GateForm::kBounded) {
      keys_ = Values(rows_ * heads_ * width_, DType::kF32);
    }
  }
  void Run(Executor& executor) override {
    const int64_t row = heads_ * width_;
    ForRows(executor, rows_, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        float* keys =
            form_.form == GateForm::kBounded ? keys_.f32() + r * row : nullptr;
        DecayGateRow(form_, x_.f32() + r * row, g_.f32() + r * row, keys);
      }
    });
  }

 private:
  GateRow form_;
  Values g_, rates_, keys_;
};

template <typename T>
std::unique_ptr<Case> MakeRowsCase(Params& params, int threads) {
  return std::make_unique<T>(params, threads);
}

}  // namespace

void RegisterGateRows(Registry& registry) {
  registry.push_back({"decay_gates", MakeRowsCase<DecayGates>});
  registry.push_back({"unit_rows", MakeRowsCase<UnitRows>});
  registry.push_back({"silu", MakeRowsCase<Entries<SiluRow>>});
  registry.push_back({"sigmoid", MakeRowsCase<Entries<SigmoidRow>>});
  registry.push_back({"softplus", MakeRowsCase<Entries<Softplus>>});
  registry.push_back({"tanh", MakeRowsCase<Entries<TanhRow>>});
}

}  // namespace tarn::bench
