#include "torch_nn/mixers/short_conv/short_conv.h"

#include "mixers/short_conv/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

// The state is the rows [B, W - 1, C] that the convolution still reads. O(T)
// time.
class ShortConv : public Mixer {
 public:
  ShortConv(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place), s_(ShortConvSizesOf(layer)) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns) {
      return register_module(
          name, torch::nn::Linear(
                    torch::nn::LinearOptions(columns, rows).bias(s_.biased)));
    };
    query_ = linear("query_projection", s_.channels, s_.d_model);
    key_ = linear("key_projection", s_.channels, s_.d_model);
    value_ = linear("value_projection", s_.channels, s_.d_model);
    filters_ = ConvolutionFilters(*this, s_.channels, s_.width, s_.biased);
    out_ = linear("out_projection", s_.d_model, s_.channels);
  }

  torch::Tensor OutputBias() const override { return out_->bias; }
  torch::Tensor OutputWeight() const override { return out_->weight; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext&,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext&,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, key_mask);
  }

  // A piece needs of the earlier ones their last W - 1 rows alone.
  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext&, const NormLayer* norm) override {
    const auto [queries, written] = Project(x, norm, {});
    torch::Tensor window = WindowBefore(written, s_.width, cut);
    return queries * Filtered(written, {}, window);
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    const auto [queries, written] = Project(x, nullptr, {});
    torch::Tensor window = state["window"];
    const torch::Tensor rows = Filtered(written, taken.lengths, window);
    state["window"] = window;
    return queries * rows;
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const torch::Tensor& kept) {
    const auto [queries, written] = Project(x, norm, kept);
    torch::Tensor window;
    return queries * Filtered(written, {}, window);
  }

  torch::Tensor Filtered(const torch::Tensor& written,
                         const torch::Tensor& lengths,
                         torch::Tensor& window) const {
    return Convolve(filters_, written, lengths, window, "none");
  }

  // q and k v [B, T, C] of x or of norm(x). Rows that are not kept are zeros
  // before the product, so that they do not enter the gradients of the maps,
  // and after it, as biases are not.
  std::pair<torch::Tensor, torch::Tensor> Project(
      const torch::Tensor& x, const NormLayer* norm,
      const torch::Tensor& kept) const {
    std::vector<torch::Tensor> biases;
    if (s_.biased) biases = {query_->bias, key_->bias, value_->bias};
    const auto parts =
        Kept(ProjectRows(Kept(x, kept), norm,
                         {query_->weight, key_->weight, value_->weight},
                         std::move(biases)),
             kept)
            .chunk(3, 2);
    return {parts[0], parts[1] * parts[2]};
  }

  const ShortConvSizes s_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
  torch::nn::Linear out_{nullptr};
  ConvolutionFilters filters_;
};

std::shared_ptr<Mixer> NewShortConv(const ModelConfig& layer,
                                    MixerPlace place) {
  return std::make_shared<ShortConv>(layer, place);
}

}  // namespace

std::vector<MixerRow> short_conv::Mixers() {
  return {{"short-conv", NewShortConv}};
}

}  // namespace tarn::nn
