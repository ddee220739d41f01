// The mixers that every build of the runtime can run, one line a family.
#include "mixers/aft/runtime.h"
#include "mixers/gated/runtime.h"
#include "mixers/linear/runtime.h"
#include "mixers/rwkv/runtime.h"
#include "mixers/softmax/runtime.h"

namespace tarn {

std::vector<RuntimeMixerRow> BuiltinRuntimeMixers() {
  std::vector<RuntimeMixerRow> rows;
  const auto add = [&](const std::vector<RuntimeMixerRow>& family) {
    rows.insert(rows.end(), family.begin(), family.end());
  };
  add(mixers::LinearRuntimeMixers());
  add(mixers::SoftmaxRuntimeMixers());
  add(mixers::LocalRuntimeMixers());
  add(mixers::AftRuntimeMixers());
  add(mixers::GatedRuntimeMixers());
  add(mixers::RwkvRuntimeMixers());
  add(mixers::GatedSoftmaxRuntimeMixers());
  return rows;
}

}  // namespace tarn
