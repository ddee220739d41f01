#include "importers/gguf/qwen_delta.h"

#include <utility>
#include <vector>

#include "importers/gguf/hybrid_parts.h"
#include "importers/publish_parts.h"

namespace tarn {
namespace {

// Value heads in the order of the published files, those of a key head one
// after the other; llama.cpp has the first of each key head, then the second.
template <typename Cut>
std::vector<WeightPart> ByKeyHeads(int64_t key_heads, int64_t each,
                                   int64_t width, const Cut& cut) {
  std::vector<WeightPart> heads;
  for (int64_t k = 0; k < key_heads; ++k) {
    for (int64_t j = 0; j < each; ++j) {
      const int64_t first = (j * key_heads + k) * width;
      heads.push_back(cut(WeightRange{first, first + width}));
    }
  }
  return heads;
}

// The tensors of one layer of Gated DeltaNet.
class QwenDelta {
 public:
  QwenDelta(const ModelConfig& view, std::string theirs, std::string own,
            GgufTensors& tensors)
      : theirs_(std::move(theirs)),
        own_(std::move(own)),
        tensors_(tensors),
        d_model_(view.d_model),
        heads_(view.n_heads),
        key_heads_(KeyHeadsOf(view)),
        each_(heads_ / key_heads_),
        d_key_(view.d_key),
        d_value_(view.d_value),
        width_(KeyOf<int64_t>(view, "conv_width")) {}

  // Rows and channels of values change their order.
  void MoveTiled() {
    const WeightPart qkv =
        tensors_(own_ + "attn_qkv.weight", {channels(), d_model_});
    Add("in_proj_qkv.weight", WithTiledValues(qkv));
    Add("in_proj_z.weight",
        Tiled(tensors_(own_ + "attn_gate.weight", {values(), d_model_}),
              d_value_));
    Add("in_proj_b.weight",
        Tiled(tensors_(own_ + "ssm_beta.weight", {heads_, d_model_}), 1));
    Add("in_proj_a.weight",
        Tiled(tensors_(own_ + "ssm_alpha.weight", {heads_, d_model_}), 1));
    Add("A_log", Tiled(GgufRates(tensors_, own_ + "ssm_a", {heads_}), 1));
    Add("dt_bias", Tiled(tensors_(own_ + "ssm_dt.bias", {heads_}), 1));
    const WeightPart kernels =
        tensors_(own_ + "ssm_conv1d.weight", {channels(), width_});
    Add("conv1d.weight",
        WithTiledValues(kernels).Reshaped({channels(), 1, width_}));
    const WeightPart out =
        tensors_(own_ + "ssm_out.weight", {d_model_, values()});
    const auto columns = [&](WeightRange range) { return out.Columns(range); };
    Add("out_proj.weight", IsTiled()
                               ? WeightPart::Beside(ByKeyHeads(
                                     key_heads_, each_, d_value_, columns))
                               : out);
    tensors_.Move(theirs_ + "norm.weight", own_ + "ssm_norm.weight");
  }

  // The published rows come by key heads; the file has all queries, all keys,
  // all values, and the gates apart. Files of the first converters have the
  // published matrix.
  void MovePacked() {
    const int64_t group = each_ * d_value_;
    const std::string fused = theirs_ + "in_proj_qkvz.weight";
    if (!tensors_.writes() && tensors_.Has(fused, own_ + "ssm_in.weight")) {
      tensors_.Move(fused, own_ + "ssm_in.weight");
    } else {
      const WeightPart qkv =
          tensors_(own_ + "attn_qkv.weight", {channels(), d_model_});
      const WeightPart gates =
          tensors_(own_ + "attn_gate.weight", {values(), d_model_});
      std::vector<WeightPart> rows;
      const auto add = [&](const WeightPart& part, int64_t first,
                           int64_t count) {
        rows.push_back(part.Rows({first, first + count}));
      };
      for (int64_t k = 0; k < key_heads_; ++k) {
        add(qkv, k * d_key_, d_key_);
        add(qkv, keys() + k * d_key_, d_key_);
        add(qkv, 2 * keys() + k * group, group);
        add(gates, k * group, group);
      }
      Add("in_proj_qkvz.weight", WeightPart::Stacked(rows));
    }
    tensors_.Move(theirs_ + "in_proj_ba.weight", own_ + "ssm_ba.weight");
    Add("A_log", GgufRates(tensors_, own_ + "ssm_a", {heads_}));
    tensors_.Move(theirs_ + "dt_bias", own_ + "ssm_dt.bias");
    tensors_.MoveAs(theirs_ + "conv1d.weight", own_ + "ssm_conv1d.weight",
                    {channels(), 1, width_}, {channels(), width_});
    tensors_.Move(theirs_ + "norm.weight", own_ + "ssm_norm.weight");
    tensors_.Move(theirs_ + "out_proj.weight", own_ + "ssm_out.weight");
  }

 private:
  int64_t keys() const { return key_heads_ * d_key_; }
  int64_t values() const { return heads_ * d_value_; }
  int64_t channels() const { return 2 * keys() + values(); }
  bool IsTiled() const { return each_ > 1 && key_heads_ > 1; }
  void Add(const char* name, WeightPart part) {
    tensors_.Add(theirs_ + name, std::move(part));
  }
  WeightPart Tiled(const WeightPart& part, int64_t width) const {
    if (!IsTiled()) return part;
    return WeightPart::Stacked(
        ByKeyHeads(key_heads_, each_, width,
                   [&](WeightRange range) { return part.Rows(range); }));
  }
  // Of rows of queries, keys and values.
  WeightPart WithTiledValues(const WeightPart& part) const {
    if (!IsTiled()) return part;
    return WeightPart::Stacked(
        {part.Rows({0, 2 * keys()}),
         Tiled(part.Rows({2 * keys(), channels()}), d_value_)});
  }

  const std::string theirs_, own_;
  GgufTensors& tensors_;
  const int64_t d_model_, heads_, key_heads_, each_, d_key_, d_value_, width_;
};

}  // namespace

void MoveQwenDelta(const ModelConfig& view, bool packed,
                   const std::string& theirs, const std::string& own,
                   GgufTensors& tensors) {
  QwenDelta delta(view, theirs, own, tensors);
  packed ? delta.MovePacked() : delta.MoveTiled();
}

}  // namespace tarn
