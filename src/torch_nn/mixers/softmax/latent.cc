// The latent variant of mixers/softmax/form.h. Here keys and values of all
// heads are made from the rows that are kept: products of whole sequences cost
// less that way.
#include "torch_nn/mixers/common/cached.h"
#include "torch_nn/mixers/softmax/form_parts.h"
#include "torch_nn/mixers/softmax/softmax.h"

namespace tarn::nn {
namespace {

// Rows of one layer before attention, normalised and rotated.
struct LatentRows {
  torch::Tensor queries;  // [B, T, H, K]
  torch::Tensor latent;   // [B, T, 1, R + S]
};

class LatentMixer : public Mixer {
 public:
  LatentMixer(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place),
        s_(layer),
        dropout_(KeyOf<double>(layer, "attention_dropout")) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns) {
      return RegisterLinear(*this, name, rows, columns, /*bias=*/false);
    };
    if (s_.query_latent > 0) {
      down_ = linear("query_down_projection", s_.query_latent, s_.d_model);
      down_norm_ = RegisterNorm(*this, "query_down_norm", s_.query_latent);
    }
    query_ = linear("query_projection", s_.queries(),
                    s_.query_latent > 0 ? s_.query_latent : s_.d_model);
    latent_ = linear("latent_projection", s_.latent_row(), s_.d_model);
    latent_norm_ = RegisterNorm(*this, "latent_norm", s_.latent);
    key_ = linear("key_projection", s_.heads * s_.own_key(), s_.latent);
    value_ = linear("value_projection", s_.outputs(), s_.latent);
    if (s_.sinks) {
      sinks_ = register_parameter("sinks", torch::zeros({s_.heads}));
    }
    out_ = RegisterLinear(*this, "out_projection", s_.d_model, s_.outputs(),
                          s_.out_bias);
  }

  torch::Tensor OutputWeight() const override { return out_->weight; }
  torch::Tensor OutputBias() const override { return out_->bias; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, context.rotary, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext& context,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, context.rotary, key_mask);
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) override {
    const LatentRows rows = Project(x, norm, context.rotary);
    const torch::Tensor before = cut.EarlierRows(rows.latent, kMaxLength);
    return Attend(rows.queries, torch::cat({before, rows.latent}, 1),
                  Masks({}, /*causal=*/true, before.size(1)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) override {
    const LatentRows rows = Project(x, nullptr, context.rotary);
    const torch::Tensor before = state["latent"];
    const torch::Tensor all = torch::cat({before, rows.latent}, 1);
    torch::Tensor out = Attend(rows.queries, all,
                               Masks(CacheMask(before.size(1), rows.latent,
                                               taken.added, state.lengths),
                                     /*causal=*/true, before.size(1)));
    state["latent"] =
        AlignAtEnd(all, taken.added, x.size(1), state.form().window);
    return out;
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const RotaryTable& rotary,
                         const torch::Tensor& key_mask) {
    const LatentRows rows = Project(x, norm, rotary);
    return Attend(rows.queries, rows.latent, Masks(key_mask, place_.causal, 0));
  }

  LatentRows Project(const torch::Tensor& x, const NormLayer* norm,
                     const RotaryTable& rotary) const {
    const bool down = s_.query_latent > 0;
    const double eps = s_.norm_eps;
    const auto parts =
        ProjectRows(x, norm,
                    {down ? down_->weight : query_->weight, latent_->weight})
            .split_with_sizes(
                {down ? s_.query_latent : s_.queries(), s_.latent, s_.shared},
                2);
    const auto normed = [&](const torch::Tensor& rows,
                            const torch::Tensor& weight) {
      return RootNorm(rows.unsqueeze(2), weight, eps).squeeze(2);
    };
    torch::Tensor queries =
        HeadsOf(down ? ops::Affine(normed(parts[0], down_norm_), query_->weight)
                     : parts[0],
                s_.heads);
    torch::Tensor shared = parts[2].unsqueeze(2);
    if (s_.rotary > 0) {
      const auto split = queries.split_with_sizes({s_.own_key(), s_.shared}, 3);
      const RotaryTable& table = rotary.At(s_.table);
      queries = torch::cat({split[0], Rotate(split[1].contiguous(), table)}, 3);
      shared = Rotate(shared.contiguous(), table);
    }
    const torch::Tensor c = normed(parts[1], latent_norm_).unsqueeze(2);
    return {queries, s_.shared > 0 ? torch::cat({c, shared}, 3) : c};
  }

  // [B, T, H V] from rows [B, S, 1, R + S].
  torch::Tensor Attend(const torch::Tensor& queries, const torch::Tensor& rows,
                       const ops::AttentionMasks& masks) const {
    const torch::Tensor c = rows.slice(3, 0, s_.latent).squeeze(2);
    const auto parts =
        ProjectRows(c.contiguous(), nullptr, {key_->weight, value_->weight})
            .split_with_sizes({s_.heads * s_.own_key(), s_.outputs()}, 2);
    torch::Tensor keys = HeadsOf(parts[0], s_.heads);
    if (s_.shared > 0) {
      const torch::Tensor shared =
          rows.slice(3, s_.latent).expand({-1, -1, s_.heads, -1});
      keys = torch::cat({keys, shared}, 3);
    }
    return ops::FullAttention(
               queries, keys, HeadsOf(parts[1], s_.heads), masks,
               OptionsOf(s_, sinks_, is_training() ? dropout_ : 0.0))
        .out.flatten(2);
  }

  const SoftmaxForm s_;
  const double dropout_;
  torch::nn::Linear down_{nullptr}, query_{nullptr}, latent_{nullptr};
  torch::nn::Linear key_{nullptr}, value_{nullptr}, out_{nullptr};
  torch::Tensor down_norm_, latent_norm_;  // [width], [R]
  torch::Tensor sinks_;                    // [H]
};

}  // namespace

std::shared_ptr<Mixer> MakeLatent(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<LatentMixer>(layer, place);
}

}  // namespace tarn::nn
