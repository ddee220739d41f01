#include "kernels/mlstm/checks.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/sequence_checks.h"

namespace tarn {

void CheckMlstmView(const MlstmGatesInputs& in, const TensorView& view,
                    DType dtype, const char* name) {
  const TensorView& x = in.input_gates;
  const auto where = [&] { return StrCat("mlstm: ", name); };
  if (!std::equal(view.size, view.size + 4, x.size)) {
    throw ShapeError(where(), ShapeText(x.Shape()), ShapeText(view.Shape()));
  }
  if (view.dtype != dtype) {
    throw DTypeError(where(), DTypeName(dtype), DTypeName(view.dtype));
  }
  if (view.data == nullptr && x.size[0] * x.size[1] != 0) {
    throw ArgumentError(where(), "data", "a null pointer");
  }
}

void CheckMlstmGates(const MlstmGatesInputs& in) {
  const TensorView& x = in.input_gates;
  if (x.size[0] < 0 || x.size[1] < 0 || x.size[2] != 1 || x.size[3] < 1) {
    throw ShapeError("mlstm: input_gates", "[B, T, 1, H] with H >= 1",
                     ShapeText(x.Shape()));
  }
  CheckMlstmView(in, x, x.dtype, "input_gates");
  CheckMlstmView(in, in.forget_gates, x.dtype, "forget_gates");
  if (!(in.softcap >= 0 && std::isfinite(in.softcap))) {
    throw ArgumentError("mlstm: softcap", "a number of at least 0",
                        StrCat(in.softcap));
  }
  CheckSequences("mlstm", "input_gates", x, /*lengths=*/nullptr, in.cu_seqlens,
                 in.sequences);
}

void WantMlstmData(const MlstmReadCall& call, const char* name,
                   const void* data) {
  if (data == nullptr && call.rows > 0) {
    throw ArgumentError(StrCat("mlstm: ", name), "data", "a null pointer");
  }
}

void CheckMlstmRead(const MlstmReadCall& call) {
  if (call.rows < 0 || call.width < 0) {
    throw ShapeError("mlstm: read", "sizes of at least 0",
                     ShapeText({call.rows, call.width}));
  }
  WantMlstmData(call, "read", call.read);
  WantMlstmData(call, "maxima", call.maxima);
}

}  // namespace tarn
