#include "runtime/mixer/step.h"

#include <algorithm>

namespace tarn {
namespace {

int64_t PanelsOf(const WeightMatrix* w) {
  return w == nullptr ? 0 : w->panels();
}

}  // namespace

int64_t PanelUnits(std::initializer_list<const WeightMatrix*> matrices) {
  int64_t units = 0;
  for (const WeightMatrix* w : matrices) units += PanelsOf(w);
  return units;
}

const void* PanelAt(std::initializer_list<const WeightMatrix*> matrices,
                    int64_t unit) {
  for (const WeightMatrix* w : matrices) {
    if (unit < PanelsOf(w)) return w->Panel(unit);
    unit -= PanelsOf(w);
  }
  return nullptr;
}

void RunProducts(std::initializer_list<StepProduct> products,
                 const StepShare& share) {
  int64_t first = 0;
  // Until what comes after it is known.
  const StepProduct* waiting = nullptr;
  int64_t waits_from = 0, waits_to = 0;
  const auto run = [&](const void* next) {
    if (waiting == nullptr) return;
    const StepProduct& p = *waiting;
    if (share.rows != 1) {
      PackedPanelMatMul(p.x.data, p.x.stride, share.rows, *p.w, waits_from,
                        waits_to, {p.y.data, p.y.stride, p.y_rows}, p.finish,
                        next);
      return;
    }
    float* y = p.y_rows != nullptr ? p.y_rows[0] : p.y.data;
    PackedRowMatMul({.x = p.x.data,
                     .w = p.w,
                     .panel_begin = waits_from,
                     .panel_end = waits_to,
                     .y = y,
                     .finish = p.finish,
                     .residual = y,
                     .next = next});
  };
  for (const StepProduct& product : products) {
    const int64_t panels = PanelsOf(product.w);
    const int64_t begin = std::max<int64_t>(share.begin - first, 0);
    const int64_t end = std::min(share.end - first, panels);
    first += panels;
    if (begin >= end) continue;
    run(product.w->Panel(begin));
    waiting = &product;
    waits_from = begin;
    waits_to = end;
  }
  run(share.next);
}

StepColumns ColumnsOfPanels(const WeightMatrix& w, const StepShare& share,
                            int64_t first) {
  const int64_t begin = std::max<int64_t>(share.begin - first, 0);
  const int64_t end = std::min(share.end - first, w.panels());
  if (begin >= end) return {};
  const int64_t column = w.FirstOutput(begin);
  return {column, w.FirstOutput(end - 1) + w.Outputs(end - 1) - column};
}

int64_t ColumnUnits(int64_t columns, int64_t each) {
  return (columns + each - 1) / each;
}

StepColumns ColumnsOf(int64_t columns, int64_t each, const StepShare& share) {
  const int64_t begin = std::min(share.begin * each, columns);
  return {begin, std::min(share.end * each, columns) - begin};
}

}  // namespace tarn
