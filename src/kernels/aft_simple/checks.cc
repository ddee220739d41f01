// Argument checks: everything here runs before any work.
#include <algorithm>

#include "core/error.h"
#include "kernels/aft_simple/slices.h"

namespace tarn::aft_simple {
namespace {

constexpr char kOp[] = "aft_simple: ";

bool Empty(const TensorView& view) {
  return std::find(view.size, view.size + 4, 0) != view.size + 4;
}

}  // namespace

void CheckView(const char* name, const TensorView& view, const TensorView& like,
               bool optional) {
  if (view.data == nullptr && (optional || Empty(like))) return;
  if (!std::equal(view.size, view.size + 4, like.size)) {
    throw ShapeError(StrCat(kOp, name), ShapeText(like.Shape()),
                     ShapeText(view.Shape()));
  }
  if (view.dtype != DType::kF32) {
    throw DTypeError(StrCat(kOp, name), "float32", DTypeName(view.dtype));
  }
  if (view.data == nullptr) {
    throw ArgumentError(StrCat(kOp, name), "data", "a null pointer");
  }
}

void CheckInputs(const AftSimpleInputs& in) {
  const int64_t* q = in.queries.size;
  if (std::any_of(q, q + 4, [](int64_t size) { return size < 0; })) {
    throw ShapeError(StrCat(kOp, "queries"), "sizes of at least 0",
                     ShapeText(in.queries.Shape()));
  }
  if (in.keys.size[1] < 0) {
    throw ShapeError(StrCat(kOp, "keys"), "sizes of at least 0",
                     ShapeText(in.keys.Shape()));
  }
  TensorView keys = in.queries;
  keys.size[1] = in.keys.size[1];
  CheckView("queries", in.queries, in.queries, false);
  CheckView("keys", in.keys, keys, false);
  CheckView("values", in.values, keys, false);
}

void CheckState(const char* name, const AftSimpleInputs& in,
                const AftSimpleState& state, bool optional) {
  const bool none =
      state.m == nullptr && state.a == nullptr && state.b == nullptr;
  const int64_t* size = in.queries.size;
  const bool empty = size[0] == 0 || size[2] == 0 || size[3] == 0;
  if (none && (optional || empty)) return;
  if (state.m != nullptr && state.a != nullptr && state.b != nullptr) return;
  throw ArgumentError(StrCat(kOp, name),
                      optional ? "m, a and b, or none of them" : "m, a and b",
                      "a null pointer");
}

}  // namespace tarn::aft_simple
