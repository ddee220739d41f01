#include "runtime/quantise/observed_format.h"

#include <utility>

#include "kernels/matmul/panel_task.h"

namespace tarn {

ObservedFormat::ObservedFormat(Taker taker)
    : WeightFormat(kF32Weights), taker_(std::move(taker)) {
  // Each input is in one task with the first panel.
  multiply = [](const PanelTask& task) {
    if (task.panel_begin == 0) {
      static_cast<const ObservedFormat&>(task.w->FormatAt(0))
          .taker_(task.x + task.row_begin * task.x_stride, task.x_stride,
                  task.row_end - task.row_begin);
    }
    kF32Weights.multiply(task);
  };
  multiply_row = [](const RowPanels& task) {
    if (task.panel_begin == 0) {
      static_cast<const ObservedFormat&>(task.w->FormatAt(0))
          .taker_(task.x, task.w->inputs(), 1);
    }
    kF32Weights.multiply_row(task);
  };
}

}  // namespace tarn
