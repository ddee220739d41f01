// The modules of every build, one line a family.
#include "torch_nn/mixers/aft/aft.h"
#include "torch_nn/mixers/gated/gated.h"
#include "torch_nn/mixers/linear/linear.h"
#include "torch_nn/mixers/registry.h"
#include "torch_nn/mixers/rwkv/rwkv.h"
#include "torch_nn/mixers/softmax/softmax.h"
#include "torch_nn/mixers/sparse/sparse.h"

namespace tarn::nn {

std::vector<MixerRow> BuiltinMixerRows() {
  std::vector<MixerRow> rows;
  const auto add = [&](const std::vector<MixerRow>& family) {
    rows.insert(rows.end(), family.begin(), family.end());
  };
  add(LinearRows());
  add(SoftmaxRows());
  add(SparseRows());
  add(AftRows());
  add(GatedRows());
  add(RwkvRows());
  add(GatedSoftmaxRows());
  return rows;
}

}  // namespace tarn::nn
