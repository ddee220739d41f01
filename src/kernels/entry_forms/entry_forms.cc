// Both passes. Where no row is shared and everything is dense, rows do not
// count: tasks are runs of entries.
#include "kernels/entry_forms/entry_forms.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entry_forms/entry_forms.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/entry_forms/entry_forms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Whether a form takes its inputs through sums, products, selections and a
// logistic curve alone: then NaNs keep their bits.
constexpr bool KeepsNaN(EntryForm form) {
  return form == EntryForm::kSiluGate || form == EntryForm::kSigmoidGate ||
         form == EntryForm::kSigmoid || form == EntryForm::kSquareRelu;
}

template <DType kType, EntryForm kForm>
static HWY_INLINE void StorePair(const EntryPair& pair, char* to) {
  StoreEntryPair<kType, !KeepsNaN(kForm)>(pair, to);
}

// What the entries of a form are computed from; 0 for what it lacks.
struct EntryInputs {
  VF x, y, weight;
};

// The part of a row after whole pairs, and rows with weights: n entries from
// entry i on, or a whole vector of them.
template <DType kType, EntryForm kForm>
static HWY_INLINE EntryInputs LoadEntries(const EntryFormCall& call,
                                          const char* x, const char* y,
                                          int64_t i, int64_t n) {
  const int64_t at = i * static_cast<int64_t>(DTypeBytes(kType));
  EntryInputs in = {LoadPiece<kType>(x + at, n), hn::Zero(DF()),
                    hn::Zero(DF())};
  if constexpr (TakesGated(kForm)) in.y = LoadPiece<kType>(y + at, n);
  if constexpr (TakesWeight(kForm)) {
    if (call.weight != nullptr) {
      in.weight = LoadPiece<DType::kF32>(call.weight + i, n);
    }
  }
  return in;
}

// pair(first byte) for the whole pairs of vectors of a row that needs no
// weights, piece(entry, first byte, entries left) for the vectors of the rest.
template <DType kType, EntryForm kForm, class Pair, class Piece>
static HWY_INLINE void ForEntries(int64_t count, const Pair& pair,
                                  const Piece& piece) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  if constexpr (!TakesWeight(kForm)) {
    for (; i + 2 * lanes <= count; i += 2 * lanes) pair(i * kBytes);
  }
  for (; i < count; i += lanes) piece(i, i * kBytes, count - i);
}

template <DType kType, EntryForm kForm>
static HWY_INLINE EntryPair LoadGated(const char* y) {
  if constexpr (TakesGated(kForm)) return LoadEntryPair<kType>(y);
  return {hn::Zero(DF()), hn::Zero(DF())};
}

template <DType kType, EntryForm kForm>
static HWY_INLINE void ForwardRun(const EntryFormCall& call, const char* x,
                                  const char* y, char* out, int64_t count) {
  const VF scale = hn::Set(DF(), call.scale), none = hn::Zero(DF());
  ForEntries<kType, kForm>(
      count,
      [&](int64_t at) HWY_ATTR {
        const EntryPair first = LoadEntryPair<kType>(x + at);
        const EntryPair second = LoadGated<kType, kForm>(y + at);
        StorePair<kType, kForm>(
            {EntryValue<kType, kForm>(first.a, second.a, none, scale),
             EntryValue<kType, kForm>(first.b, second.b, none, scale)},
            out + at);
      },
      [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
        const auto in = LoadEntries<kType, kForm>(call, x, y, i, n);
        StorePiece<kType>(
            EntryValue<kType, kForm>(in.x, in.y, in.weight, scale), out + at,
            n);
      });
}

struct PullbackRun {
  const char *grad_out, *x, *y;
  char *grad_x, *grad_y;
};

template <DType kType, EntryForm kForm>
static HWY_INLINE void BackwardRun(const EntryFormCall& call,
                                   const PullbackRun& run, float* sums,
                                   int64_t count) {
  const VF scale = hn::Set(DF(), call.scale), none = hn::Zero(DF());
  ForEntries<kType, kForm>(
      count,
      [&](int64_t at) HWY_ATTR {
        const EntryPair flow = LoadEntryPair<kType>(run.grad_out + at);
        const EntryPair first = LoadEntryPair<kType>(run.x + at);
        const EntryPair second = LoadGated<kType, kForm>(run.y + at);
        const EntryPullback a =
            EntrySlopes<kType, kForm>(flow.a, first.a, second.a, none, scale);
        const EntryPullback b =
            EntrySlopes<kType, kForm>(flow.b, first.b, second.b, none, scale);
        StorePair<kType, kForm>({a.x, b.x}, run.grad_x + at);
        if constexpr (TakesGated(kForm)) {
          StorePair<kType, kForm>({a.y, b.y}, run.grad_y + at);
        }
      },
      [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
        const auto in = LoadEntries<kType, kForm>(call, run.x, run.y, i, n);
        const EntryPullback back =
            EntrySlopes<kType, kForm>(LoadPiece<kType>(run.grad_out + at, n),
                                      in.x, in.y, in.weight, scale);
        StorePiece<kType>(back.x, run.grad_x + at, n);
        if constexpr (TakesGated(kForm)) {
          StorePiece<kType>(back.y, run.grad_y + at, n);
        }
        if constexpr (TakesWeight(kForm)) {
          if (sums == nullptr) return;
          const VF sum = LoadPiece<DType::kF32>(sums + i, n);
          StorePiece<DType::kF32>(hn::Add(sum, back.weight), sums + i, n);
        }
      });
}

static char* EntryAt(const EntryRows& rows, DType dtype, int64_t row) {
  return static_cast<char*>(rows.data) +
         row * rows.stride * static_cast<int64_t>(DTypeBytes(dtype));
}

static void ForwardEntries(const EntryFormCall& call, const EntryRows& out,
                           int64_t begin, int64_t end) {
  const auto at = [&](const EntryRows& rows, int64_t row) {
    return EntryAt(rows, call.dtype, row);
  };
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    WithEntryForm(call.form, [&](auto form) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        ForwardRun<decltype(type)::value, decltype(form)::value>(
            call, at(call.x, row), at(call.y, row), at(out, row), call.width);
      }
    });
  });
}

// sums: [width], set here; null: not wanted.
static void BackwardEntries(const EntryFormCall& call,
                            const EntryFormGradients& g, int64_t begin,
                            int64_t end, float* sums) {
  const auto at = [&](const EntryRows& rows, int64_t row) {
    return EntryAt(rows, call.dtype, row);
  };
  if (sums != nullptr) std::fill(sums, sums + call.width, 0.0f);
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    WithEntryForm(call.form, [&](auto form) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        BackwardRun<decltype(type)::value, decltype(form)::value>(
            call,
            {at(g.grad_out, row), at(call.x, row), at(call.y, row),
             at(g.grad_x, row), at(g.grad_y, row)},
            sums, call.width);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(ForwardEntries);
HWY_EXPORT(BackwardEntries);

void WantEntryData(const EntryFormCall& call, const char* name,
                   const EntryRows& rows) {
  if (rows.data == nullptr && call.rows > 0 && call.width > 0) {
    throw ArgumentError(StrCat("entry_form: ", name), "data", "a null pointer");
  }
}

void CheckEntryForm(const EntryFormCall& call) {
  if (call.rows < 0 || call.width < 0) {
    throw ShapeError("entry_form: x", "sizes of at least 0",
                     ShapeText({call.rows, call.width}));
  }
  WantEntryData(call, "x", call.x);
  if (TakesGated(call.form)) WantEntryData(call, "y", call.y);
  if (call.form == EntryForm::kMixedGate && call.weight == nullptr) {
    throw ArgumentError("entry_form: weight", "data", "a null pointer");
  }
}

// Only sums bound the number of tasks.
WideRowTasks EntryRowTasks(const EntryFormCall& call, bool sums) {
  return {call.rows, call.width, sums ? 64 : std::max<int64_t>(call.rows, 1)};
}

// f(call of one row, its first entry, task) for runs of a dense call.
template <typename F>
void ForEntryRuns(const EntryFormCall& call, Executor& executor, const F& f) {
  const int64_t total = call.rows * call.width;
  executor.ParallelFor((total + kEntriesOfTask - 1) / kEntriesOfTask,
                       [&](int64_t task, int) {
                         const int64_t begin = task * kEntriesOfTask;
                         EntryFormCall run = call;
                         run.rows = 1;
                         run.width = std::min(kEntriesOfTask, total - begin);
                         f(run, begin);
                       });
}

EntryRows EntriesFrom(const EntryFormCall& call, EntryRows rows,
                      int64_t entry) {
  if (rows.data != nullptr) {
    rows.data = static_cast<char*>(rows.data) +
                entry * static_cast<int64_t>(DTypeBytes(call.dtype));
  }
  return rows;
}

bool IsDense(const EntryFormCall& call, const EntryRows& rows) {
  return rows.data == nullptr || call.rows <= 1 || rows.stride == call.width;
}

}  // namespace

void EntryFormForward(const EntryFormCall& call, const EntryRows& out,
                      Executor& executor) {
  CheckEntryForm(call);
  WantEntryData(call, "out", out);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardEntries);
  if (call.weight == nullptr && IsDense(call, call.x) &&
      IsDense(call, call.y) && IsDense(call, out)) {
    return ForEntryRuns(call, executor, [&](EntryFormCall& run, int64_t entry) {
      run.x = EntriesFrom(call, call.x, entry);
      run.y = EntriesFrom(call, call.y, entry);
      kernel(run, EntriesFrom(call, out, entry), 0, 1);
    });
  }
  const WideRowTasks tasks = EntryRowTasks(call, false);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, out, tasks.begin(task), tasks.end(task));
  });
}

size_t EntryFormGradientBytes(const EntryFormCall& call, bool grad_weight) {
  if (!grad_weight) return 0;
  return static_cast<size_t>(EntryRowTasks(call, true).count() *
                             PadRow(call.width)) *
         sizeof(float);
}

void EntryFormBackward(const EntryFormCall& call, const EntryFormGradients& g,
                       Executor& executor, void* workspace) {
  CheckEntryForm(call);
  WantEntryData(call, "grad_out", g.grad_out);
  WantEntryData(call, "grad_x", g.grad_x);
  if (TakesGated(call.form)) WantEntryData(call, "grad_y", g.grad_y);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardEntries);
  if (call.weight == nullptr && g.grad_weight == nullptr &&
      IsDense(call, call.x) && IsDense(call, call.y) &&
      IsDense(call, g.grad_out) && IsDense(call, g.grad_x) &&
      IsDense(call, g.grad_y)) {
    return ForEntryRuns(call, executor, [&](EntryFormCall& run, int64_t entry) {
      run.x = EntriesFrom(call, call.x, entry);
      run.y = EntriesFrom(call, call.y, entry);
      EntryFormGradients at = g;
      for (EntryRows* rows : {&at.grad_out, &at.grad_x, &at.grad_y}) {
        *rows = EntriesFrom(call, *rows, entry);
      }
      kernel(run, at, 0, 1, nullptr);
    });
  }
  const WideRowTasks tasks = EntryRowTasks(call, g.grad_weight != nullptr);
  float* sums =
      g.grad_weight == nullptr ? nullptr : static_cast<float*>(workspace);
  const int64_t stride = PadRow(call.width);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, g, tasks.begin(task), tasks.end(task),
           sums == nullptr ? nullptr : sums + task * stride);
  });
  if (sums != nullptr) {
    AddUpTasks(tasks.count(), sums, stride, call.width, g.grad_weight);
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
