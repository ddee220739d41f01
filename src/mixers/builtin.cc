// The mixers of every build, one line a family. Configurations written before
// format 4 count them: the order is that of AttentionKind.
#include "mixers/aft/spec.h"
#include "mixers/gated/spec.h"
#include "mixers/linear/spec.h"
#include "mixers/rwkv/spec.h"
#include "mixers/softmax/spec.h"
#include "mixers/sparse/spec.h"

namespace tarn {

std::vector<MixerSpec> BuiltinMixers() {
  std::vector<MixerSpec> rows;
  const auto add = [&](std::vector<MixerSpec> family) {
    for (MixerSpec& row : family) rows.push_back(std::move(row));
  };
  add(mixers::LinearMixers());
  add(mixers::SoftmaxMixers());
  add(mixers::ConditionalMixers());
  add(mixers::SparseMixers());
  add(mixers::AftMixers());
  add(mixers::GatedMixers());
  add(mixers::RwkvMixers());
  add(mixers::GatedSoftmaxMixers());
  return rows;
}

}  // namespace tarn
