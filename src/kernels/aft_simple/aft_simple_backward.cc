// The gradient: a forward pass for the state at every query, then back.
#include <cstdint>

#include "core/error.h"
#include "kernels/aft_simple/aft_simple.h"
#include "kernels/aft_simple/slices.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/aft_simple/aft_simple_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/aft_simple/recurrence-inl.h"

#ifndef TARN_KERNELS_AFT_SIMPLE_BACKWARD_ONCE_
#define TARN_KERNELS_AFT_SIMPLE_BACKWARD_ONCE_
namespace tarn::aft_simple {

// The task's part of AftSimpleGradients.
struct SliceGradients {
  Rows out;
  const float *m, *a, *b;
  Rows q, k, v;
  AftSimpleState initial;

  bool OfState() const { return m != nullptr || a != nullptr || b != nullptr; }
};

}  // namespace tarn::aft_simple
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

using aft_simple::SliceGradients;

class SliceBackward {
 public:
  // scratch: 3 * queries * kSliceChannels floats.
  SliceBackward(const Slice& s, const SliceGradients& g, float* scratch)
      : s_(s),
        g_(g),
        m_(scratch),
        b_(m_ + s.queries * kSliceChannels),
        average_(b_ + s.queries * kSliceChannels) {}

  void Run() {
    std::fill_n(last_, kSliceChannels, -1);
    Forward();
    int64_t top = s_.keys;
    for (int64_t i = s_.queries - 1; i >= 0; --i) {
      for (; top > s_.KeysOf(i); --top) Key(top - 1);
      Query(i);
    }
    for (; top > 0; --top) Key(top - 1);
    if (g_.OfState()) GiveMaximum();
    if (g_.initial.m != nullptr) Initial();
  }

 private:
  // Records m, b and a / b at every query and starts from the final state.
  void Forward() {
    Memory memory(s_);
    int64_t next = 0;
    const auto absorb_to = [&](int64_t end) HWY_ATTR {
      for (; next < end; ++next) {
        if (s_.Keeps(next)) Absorb<true>(s_, next, memory, last_);
      }
    };
    for (int64_t i = 0; i < s_.queries; ++i) {
      absorb_to(s_.KeysOf(i));
      std::copy_n(memory.m, kSliceChannels, m_ + i * kSliceChannels);
      std::copy_n(memory.b, kSliceChannels, b_ + i * kSliceChannels);
      Average(s_, memory, average_ + i * kSliceChannels);
    }
    absorb_to(s_.keys);
    Start(memory);
  }

  // The final state reads every key, without a division.
  void Start(const Memory& memory) {
    const DF d;
    const auto load = [&](const float* p, int64_t i, int64_t n) HWY_ATTR {
      return p == nullptr ? hn::Zero(d) : LoadSome(p + i, n);
    };
    ForVectors(s_.channels, [&](int64_t i, int64_t n) HWY_ATTR {
      const VF a = load(g_.a, i, n), b = load(g_.b, i, n);
      hn::Store(hn::Load(d, memory.m + i), d, top_ + i);
      hn::Store(a, d, weighted_ + i);
      hn::Store(hn::Neg(b), d, centred_ + i);
      VF maximum = load(g_.m, i, n);
      maximum = hn::NegMulAdd(hn::Load(d, memory.a + i), a, maximum);
      maximum = hn::NegMulAdd(hn::Load(d, memory.b + i), b, maximum);
      hn::Store(maximum, d, maximum_ + i);
    });
  }

  void Query(int64_t row) {
    const DF d;
    const VF zero = hn::Zero(d);
    const int64_t at = row * kSliceChannels;
    ForVectors(s_.channels, [&](int64_t i, int64_t n) HWY_ATTR {
      const VF b = hn::LoadU(d, b_ + at + i), m = hn::LoadU(d, m_ + at + i);
      const VF average = hn::LoadU(d, average_ + at + i);
      const VF top = hn::Load(d, top_ + i);
      VF weighted = hn::Load(d, weighted_ + i);
      VF centred = hn::Load(d, centred_ + i);
      const auto none = hn::Eq(b, zero);  // nothing read: no gradient
      const VF scale = Decay(hn::Sub(m, top));
      weighted = hn::IfThenElse(none, weighted, hn::Mul(weighted, scale));
      centred = hn::IfThenElse(none, centred, hn::Mul(centred, scale));
      hn::Store(hn::IfThenElse(none, top, m), d, top_ + i);
      const VF grad =
          g_.out.data == nullptr ? zero : LoadSome(g_.out[row] + i, n);
      // A padding query may be NaN: its gradient is 0.
      const auto quiet = hn::Or(none, hn::Eq(grad, zero));
      const LogisticCurve gate = LogisticAt(LoadSome(s_.q[row] + i, n));
      StoreSome(hn::IfThenZeroElse(
                    quiet, hn::Mul(hn::Mul(grad, average), gate.density)),
                g_.q[row] + i, n);
      const VF share = hn::Div(hn::Mul(grad, gate.below), b);
      hn::Store(hn::IfThenElse(quiet, weighted, hn::Add(weighted, share)), d,
                weighted_ + i);
      hn::Store(
          hn::IfThenElse(quiet, centred, hn::MulAdd(share, average, centred)),
          d, centred_ + i);
    });
  }

  void Key(int64_t j) {
    const DF d;
    const VF zero = hn::Zero(d), empty = hn::Set(d, kEmpty);
    if (!s_.Keeps(j)) {
      std::fill_n(g_.k[j], s_.channels, 0.0f);
      std::fill_n(g_.v[j], s_.channels, 0.0f);
      return;
    }
    ForVectors(s_.channels, [&](int64_t i, int64_t n) HWY_ATTR {
      const VF k = LoadSome(s_.k[j] + i, n), v = LoadSome(s_.v[j] + i, n);
      const auto skipped = hn::Eq(k, empty);
      const VF weight = Decay(hn::Sub(k, hn::Load(d, top_ + i)));
      const VF weighted = hn::Load(d, weighted_ + i);
      const VF pull =
          hn::IfThenZeroElse(hn::Eq(weighted, zero), hn::Mul(v, weighted));
      const VF gk = hn::Mul(weight, hn::Sub(pull, hn::Load(d, centred_ + i)));
      StoreSome(hn::IfThenZeroElse(skipped, hn::Mul(weight, weighted)),
                g_.v[j] + i, n);
      StoreSome(hn::IfThenZeroElse(skipped, gk), g_.k[j] + i, n);
    });
  }

  // Gives the gradient of the maximum itself, less what a and b lose by it, to
  // the key that holds it.
  void GiveMaximum() {
    for (int64_t i = 0; i < s_.channels; ++i) {
      if (last_[i] >= 0) g_.k[last_[i]][i] += maximum_[i];
    }
  }

  // Whatever reads a key also reads a0 and b0, with exp(m0) in its place.
  void Initial() {
    const DF d;
    const DI di;
    const VF zero = hn::Zero(d);
    const Memory before(s_);
    ForVectors(s_.channels, [&](int64_t i, int64_t n) HWY_ATTR {
      const VF m = hn::Load(d, before.m + i);
      const VF weight =
          hn::IfThenZeroElse(hn::Eq(m, hn::Set(d, kEmpty)),
                             Decay(hn::Sub(m, hn::Load(d, top_ + i))));
      const VF a = hn::Mul(weight, hn::Load(d, weighted_ + i));
      const VF b = hn::Neg(hn::Mul(weight, hn::Load(d, centred_ + i)));
      StoreSome(a, g_.initial.a + i, n);
      StoreSome(b, g_.initial.b + i, n);
      const auto holds =
          hn::RebindMask(d, hn::Lt(hn::Load(di, last_ + i), hn::Zero(di)));
      VF of_m = hn::IfThenElse(holds, hn::Load(d, maximum_ + i), zero);
      of_m = hn::MulAdd(hn::Load(d, before.b + i), b, of_m);
      of_m = hn::MulAdd(hn::Load(d, before.a + i), a, of_m);
      StoreSome(of_m, g_.initial.m + i, n);
    });
  }

  const Slice& s_;
  const SliceGradients& g_;
  float *m_, *b_, *average_;                  // [queries, kSliceChannels]
  HWY_ALIGN float weighted_[kSliceChannels];  // w of the header,
  HWY_ALIGN float centred_[kSliceChannels];   // c,
  HWY_ALIGN float top_[kSliceChannels];       // both times exp(top)
  HWY_ALIGN float maximum_[kSliceChannels];   // gradient of the final m
  HWY_ALIGN int32_t last_[kSliceChannels];    // the key that holds it; or -1
};

static void BackwardSlice(const Slice& s, const SliceGradients& g,
                          float* scratch) {
  SliceBackward(s, g, scratch).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(BackwardSlice);

int64_t WorkerFloats(const AftSimpleInputs& in) {
  return 3 * in.queries.size[1] * aft_simple::kSliceChannels;
}

}  // namespace

int64_t AftSimpleBackwardFloats(const AftSimpleInputs& in, int width) {
  aft_simple::CheckInputs(in);
  return width * WorkerFloats(in);
}

void AftSimpleBackward(const AftSimpleInputs& in, const AftSimpleState& initial,
                       const AftSimpleGradients& g, Executor& executor,
                       float* workspace) {
  using aft_simple::CheckView;
  aft_simple::CheckInputs(in);
  if (in.keys.size[1] > std::numeric_limits<int32_t>::max()) {
    throw ShapeError("aft_simple: keys", "at most 2^31 - 1 rows",
                     StrCat(in.keys.size[1]));
  }
  aft_simple::CheckState("initial", in, initial, /*optional=*/true);
  aft_simple::CheckState("gradients.initial", in, g.initial, /*optional=*/true);
  CheckView("gradients.out", g.out, in.queries, /*optional=*/true);
  CheckView("gradients.queries", g.queries, in.queries, /*optional=*/false);
  CheckView("gradients.keys", g.keys, in.keys, /*optional=*/false);
  CheckView("gradients.values", g.values, in.values, /*optional=*/false);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardSlice);
  const aft_simple::Slices slices(in, {&g.out, &g.queries, &g.keys, &g.values});
  if (workspace == nullptr && slices.count() > 0 && WorkerFloats(in) > 0) {
    throw ArgumentError("aft_simple: workspace", "data", "a null pointer");
  }
  executor.ParallelFor(slices.count(), [&](int64_t task, int worker) {
    const aft_simple::SliceGradients part = {
        slices.RowsOf(g.out, task),     slices.PartOf(g.m, task),
        slices.PartOf(g.a, task),       slices.PartOf(g.b, task),
        slices.RowsOf(g.queries, task), slices.RowsOf(g.keys, task),
        slices.RowsOf(g.values, task),  slices.StateOf(g.initial, task)};
    kernel(slices.At(task, initial), part,
           workspace + worker * WorkerFloats(in));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
