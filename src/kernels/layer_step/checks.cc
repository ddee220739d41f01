#include "kernels/layer_step/checks.h"

#include "core/error.h"

namespace tarn::layer_step {
namespace {

void WantMap(const LayerStepMap& map, const char* name) {
  if (map.weight == nullptr) {
    throw ArgumentError(StrCat("LayerSteps: ", name), "data", "a null pointer");
  }
}

void WantNorm(const LayerStepCall& call, const LayerStepNorm& norm) {
  if (norm.gamma == nullptr) {
    throw ArgumentError("LayerSteps: norm", "data", "a null pointer");
  }
  if (norm.beta != nullptr && call.norm_kind == NormKind::kRms) {
    throw ArgumentError("LayerSteps: norm", "no beta with an RMS norm", "one");
  }
}

}  // namespace

void Check(const LayerStepCall& call) {
  if (call.rows < 0 || call.count < 0 || call.hidden < 0) {
    throw ShapeError("LayerSteps: rows, count, hidden", ">= 0",
                     StrCat(call.rows, ", ", call.count, ", ", call.hidden));
  }
  if (call.width < 1 || call.heads < 1 || call.d_key < 1 || call.d_value < 1) {
    throw ShapeError("LayerSteps: width, heads, d_key, d_value", ">= 1",
                     StrCat(call.width, ", ", call.heads, ", ", call.d_key,
                            ", ", call.d_value));
  }
  if (call.attentions < 1 || call.attentions > kMostStepAttentions) {
    throw ShapeError("LayerSteps: attentions",
                     StrCat("1 to ", kMostStepAttentions),
                     StrCat(call.attentions));
  }
  if (call.head.weight != nullptr && call.outputs < 1) {
    throw ShapeError("LayerSteps: outputs", ">= 1 with a head",
                     StrCat(call.outputs));
  }
  for (int64_t i = 0; i < call.count; ++i) {
    const LayerStepLayer& w = call.layers[i];
    for (int64_t k = 0; k < call.attentions; ++k) {
      WantMap(w.attention[k].query, "query");
      WantMap(w.attention[k].out, "out");
      WantNorm(call, w.attention[k].norm);
    }
    WantMap(w.linear1, "linear1");
    WantMap(w.linear2, "linear2");
    WantNorm(call, w.norm);
  }
  if (call.rows > 0 && (call.x == nullptr || call.out == nullptr)) {
    throw ArgumentError("LayerSteps: x, out", "data", "a null pointer");
  }
}

}  // namespace tarn::layer_step
