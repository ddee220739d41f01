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
  RowPanels waiting;  // until what comes after it is known
  const auto run = [&](const void* next) {
    if (waiting.w == nullptr) return;
    waiting.next = next;
    PackedRowMatMul(waiting);
  };
  for (const StepProduct& product : products) {
    const int64_t panels = PanelsOf(product.w);
    const int64_t begin = std::max<int64_t>(share.begin - first, 0);
    const int64_t end = std::min(share.end - first, panels);
    first += panels;
    if (begin >= end) continue;
    run(product.w->Panel(begin));
    waiting = {.x = product.x,
               .w = product.w,
               .panel_begin = begin,
               .panel_end = end,
               .y = product.y,
               .finish = product.finish,
               .residual = product.residual};
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
