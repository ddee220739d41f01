// How a call of rg_lru.h is checked and cut: for both passes.
#pragma once

#include "kernels/rg_lru/rg_lru.h"
#include "kernels/row_tasks.h"

namespace tarn {

/// Throws ArgumentError naming the argument where data is absent.
void WantRgLruData(const RgLruCall& call, const char* name, const void* data);

/// The sizes and the inputs of a call.
void CheckRgLru(const RgLruCall& call);

inline WideRowTasks RgLruTasks(const RgLruCall& call) {
  return {call.rows, call.channels.count, 64};
}

}  // namespace tarn
