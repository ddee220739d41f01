// How calls of mlstm.h are checked and cut: for both passes.
#pragma once

#include "kernels/mlstm/mlstm.h"
#include "kernels/row_tasks.h"

namespace tarn {

/// Throws unless the inputs of the gates are as they should be.
void CheckMlstmGates(const MlstmGatesInputs& in);

/// Throws unless `view` has the shape of the gates and data; dtype: wanted.
void CheckMlstmView(const MlstmGatesInputs& in, const TensorView& view,
                    DType dtype, const char* name);

void CheckMlstmRead(const MlstmReadCall& call);

/// Throws ArgumentError naming the argument where data is absent.
void WantMlstmData(const MlstmReadCall& call, const char* name,
                   const void* data);

inline WideRowTasks MlstmReadTasks(const MlstmReadCall& call) {
  return {call.rows, call.width + 1, 64};
}

}  // namespace tarn
