#include "kernels/token_shift/token_shift_ref.h"

#include <cstddef>

namespace tarn::reference {
namespace {

// f(entry, its column, the entry before it: in x, or `x.size()` + that of
// `before`).
template <typename F>
void ForShiftEntries(const TokenShiftProblem& p, const F& f) {
  for (size_t s = 0; s + 1 < p.bounds.size(); ++s) {
    for (int64_t row = p.bounds[s]; row < p.bounds[s + 1]; ++row) {
      for (int64_t i = 0; i < p.width; ++i) {
        const size_t at = static_cast<size_t>(row * p.width + i);
        const size_t earlier =
            row > p.bounds[s] ? at - static_cast<size_t>(p.width)
                              : p.x.size() + s * static_cast<size_t>(p.width) +
                                    static_cast<size_t>(i);
        f(at, static_cast<size_t>(i), earlier);
      }
    }
  }
}

double EntryBefore(const TokenShiftProblem& p, size_t earlier) {
  if (earlier < p.x.size()) return p.x[earlier];
  return p.before.empty() ? 0 : p.before[earlier - p.x.size()];
}

}  // namespace

std::vector<double> TokenShift(const TokenShiftProblem& p) {
  std::vector<double> y(p.x.size());
  ForShiftEntries(p, [&](size_t at, size_t i, size_t earlier) {
    const double change = EntryBefore(p, earlier) - p.x[at];
    y[at] = p.weight.empty() ? change : p.x[at] + p.weight[i] * change;
  });
  return y;
}

TokenShiftProblem TokenShiftBackward(const TokenShiftProblem& p,
                                     const std::vector<double>& grad_y) {
  TokenShiftProblem d = p;
  for (auto* part : {&d.x, &d.before, &d.weight}) part->assign(part->size(), 0);
  ForShiftEntries(p, [&](size_t at, size_t i, size_t earlier) {
    const double w = p.weight.empty() ? 1 : p.weight[i];
    const double flow = w * grad_y[at];
    d.x[at] += (p.weight.empty() ? 0 : grad_y[at]) - flow;
    if (earlier < p.x.size()) {
      d.x[earlier] += flow;
    } else if (!p.before.empty()) {
      d.before[earlier - p.x.size()] += flow;
    }
    if (!p.weight.empty()) {
      d.weight[i] += grad_y[at] * (EntryBefore(p, earlier) - p.x[at]);
    }
  });
  return d;
}

}  // namespace tarn::reference
