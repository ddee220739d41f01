#include "torch_nn/mixers/gated/gated.h"

#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/gated/cut.h"
#include "torch_nn/mixers/gated/rows.h"
#include "torch_nn/mixers/gated/weights.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

constexpr size_t kMostMaps = 4;  // that ops::LayerHeads takes

// The state is S [B, H, C, V] and, after a convolution, the rows [B, W - 1, C]
// that it still reads: of constant size. O(T) time.
class Gated : public Mixer {
 public:
  Gated(const GatedForm& form, const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place),
        form_(form),
        s_(SizesOf(form_, layer)),
        negative_eigenvalues_(KeyOf<bool>(layer, "negative_eigenvalues")),
        depth_(DepthOf(layer, place)),
        weights_(*this, form_, s_, depth_) {}

  torch::Tensor OutputWeight() const override { return weights_.out->weight; }
  torch::Tensor OutputBias() const override { return weights_.out->bias; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, context, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext& context,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, context, key_mask);
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) override {
    const Rows rows = Project(x, norm, {});
    torch::Tensor window;
    if (s_.width > 0) window = WindowBefore(rows.mixed, s_.width, cut);
    const GatedInputs in = Prepare(rows, context, {}, {}, window);
    const torch::Tensor before = StateBefore(form_, s_, in, cut);
    return Finish(rows, in, Recur(form_, s_, in, {}, before, false).out);
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) override {
    const Rows rows = Project(x, nullptr, {});
    torch::Tensor window;
    if (s_.width > 0) window = state["window"];
    const GatedInputs in = Prepare(rows, context, {}, taken.lengths, window);
    const ops::GatedResult result =
        Recur(form_, s_, in, taken.lengths, state["S"], /*return_state=*/true);
    state["S"] = result.final_state;
    if (s_.width > 0) state["window"] = window;
    return Finish(rows, in, result.out);
  }

 private:
  // What the first product makes of a row.
  struct Rows {
    torch::Tensor mixed;  // queries, keys (unless bounded) and values
    torch::Tensor gate, decay, beta;
  };

  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const MixerContext& context,
                         const torch::Tensor& kept) {
    const Rows rows = Project(x, norm, kept);
    torch::Tensor window;
    const GatedInputs in = Prepare(rows, context, kept, {}, window);
    return Finish(rows, in, Recur(form_, s_, in, {}, {}, false).out);
  }

  // One product for all maps of x or of norm(x). Rows that are not kept are
  // zeros before it, so that they do not enter the gradients of the maps, and
  // after it, as the norm of zeros may be its bias.
  Rows Project(const torch::Tensor& x, const NormLayer* norm,
               const torch::Tensor& kept) const {
    std::vector<torch::Tensor> maps = weights_.FirstMaps();
    std::vector<torch::Tensor> biases = weights_.FirstBiases();
    for (std::vector<torch::Tensor>* parts : {&maps, &biases}) {
      if (parts->size() <= kMostMaps) continue;
      // The last ones are the narrow ones.
      const torch::Tensor last = torch::cat(std::vector<torch::Tensor>(
          parts->begin() + (kMostMaps - 1), parts->end()));
      parts->resize(kMostMaps - 1);
      parts->push_back(last);
    }
    const torch::Tensor packed = Kept(
        ProjectRows(Kept(x, kept), norm, std::move(maps), std::move(biases)),
        kept);
    std::vector<int64_t> widths = {form_.bounded() ? s_.keys + s_.values
                                                   : s_.channels};
    for (const auto* map : {&weights_.gate, &weights_.decay, &weights_.beta}) {
      if (!map->is_empty()) widths.push_back((*map)->weight.size(0));
    }
    const auto parts = packed.split_with_sizes(widths, /*dim=*/2);
    Rows rows;
    size_t i = 0;
    rows.mixed = parts[i++];
    if (!weights_.gate.is_empty()) rows.gate = parts[i++];
    if (!weights_.decay.is_empty()) rows.decay = parts[i++];
    if (!weights_.beta.is_empty()) rows.beta = parts[i++];
    if (!weights_.gate_up.is_empty()) {
      rows.gate = ops::Affine(rows.gate, weights_.gate_up->weight,
                              ops::NoneOr(weights_.gate_up->bias));
    }
    if (!weights_.decay_up.is_empty()) {
      rows.decay = ops::Affine(rows.decay, weights_.decay_up->weight,
                               ops::NoneOr(weights_.decay_up->bias));
    }
    return rows;
  }

  // The lower bounds of the decay factors, [gates]; undefined without.
  torch::Tensor Bounds(const MixerContext& context) const {
    if (!s_.learns_bounds) return weights_.lower_bound;
    torch::Tensor all;
    if (s_.reads_bounds) {
      all = PassedRows::ReadTable(context.passed, s_.depth, s_.gates);
    } else {
      all = ops::DepthBounds(weights_.bound_logits);
      if (context.passed != nullptr) context.passed->table = all;
    }
    return all[depth_.layer];
  }

  GatedInputs Prepare(const Rows& rows, const MixerContext& context,
                      const torch::Tensor& kept, const torch::Tensor& lengths,
                      torch::Tensor& window) const {
    torch::Tensor mixed = rows.mixed;
    if (form_.convolution) {
      mixed = s_.width > 0
                  ? Convolve(weights_.convolution, rows.mixed, lengths, window)
                  : torch::silu(rows.mixed);
    }
    const ops::DecayGateResult gate =
        Gates(form_, s_, weights_, rows.decay, Bounds(context));
    GatedInputs in;
    in.gates = gate.gates;
    if (form_.bounded()) {
      const auto parts = mixed.split_with_sizes({s_.keys, s_.values}, 2);
      in.queries = AsHeads(parts[0], s_.key_heads);
      in.keys = gate.second;
      in.values = AsHeads(parts[1], s_.heads);
    } else if (form_.unit) {  // queries and keys at once
      const auto parts = mixed.split_with_sizes({2 * s_.keys, s_.values}, 2);
      const auto unit =
          ops::UnitNorm(AsHeads(parts[0], 2 * s_.key_heads), kUnitEps)
              .chunk(2, 2);
      in.queries = unit[0];
      in.keys = unit[1];
      in.values = AsHeads(parts[1], s_.heads);
    } else {
      const auto parts =
          mixed.split_with_sizes({s_.keys, s_.keys, s_.values}, 2);
      in.queries = AsHeads(parts[0], s_.key_heads);
      in.keys = AsHeads(parts[1], s_.key_heads);
      in.values = AsHeads(parts[2], s_.heads);
    }
    if (!form_.convolution) {
      if (form_.silu_queries) in.queries = torch::silu(in.queries);
      if (form_.silu_keys_values) {
        in.keys = torch::silu(in.keys);
        in.values = torch::silu(in.values);
      }
    }
    if (form_.rotary) {
      in.queries = Rotate(in.queries, context.rotary);
      in.keys = Rotate(in.keys, context.rotary);
    }
    if (form_.mapped) {
      in.queries =
          HeadFeatures(s_.phi, weights_.query_map, weights_.query_factor,
                       s_.phi.unit_queries, in.queries);
      in.keys = HeadFeatures(s_.phi, weights_.key_map, weights_.key_factor,
                             s_.phi.unit_keys, in.keys);
      in.values = CountedValues(s_.phi, in.values);
    }
    if (form_.skip) {
      in.skipped = in.values;
      in.values = ops::HeadScale(in.values, gate.second);
    }
    if (form_.delta) {
      in.betas = torch::sigmoid(WideRows(rows.beta));
      if (negative_eigenvalues_) in.betas = 2 * in.betas;
    }
    // A key of zeros writes nothing and a gate of 0 lets the state pass.
    in.keys = Kept(in.keys, kept);
    if (kept.defined() && form_.constant()) {
      in.gates = in.gates.expand({kept.size(0), kept.size(1), s_.heads});
    }
    in.gates = Kept(in.gates, kept);
    return in;
  }

  torch::Tensor Finish(const Rows& rows, const GatedInputs& in,
                       torch::Tensor heads) const {
    if (form_.skip) heads = ops::HeadScale(in.skipped, weights_.D, heads);
    heads = DividedSums(s_.phi, heads);
    return NormOutput(form_, s_, weights_.norm, heads, rows.gate);
  }

  const GatedForm form_;
  const GatedSizes s_;
  const bool negative_eigenvalues_;
  const Depth depth_;
  const GatedWeights weights_;
};

std::shared_ptr<Mixer> MakeGated(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Gated>(
      FormOf(*FindGatedForm(Name(layer.attention)), layer), layer, place);
}

}  // namespace

std::vector<MixerRow> gated::Mixers() {
  std::vector<MixerRow> rows;
  for (const GatedForm& form : GatedForms()) {
    rows.push_back({form.name, MakeGated});
  }
  return rows;
}

}  // namespace tarn::nn
