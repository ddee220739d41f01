#include "kernels/layer_step/layer_step.h"

#include "kernels/layer_step/checks.h"
#include "kernels/layer_step/products.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/scratch.h"
#include "kernels/swiglu/swiglu.h"

namespace tarn {
namespace layer_step {
namespace {

// Phases of an attention: maps, Attend, the output map. Phases of the
// feed-forward network: its first maps with the activation, its last map.
constexpr int64_t kAttentionPhases = 3, kFeedForwardPhases = 2;

// What all shares read and write; each share writes its part.
struct Shared {
  LayerStepRows heads;
  float *product, *hidden, *up;
};

// The current rows, which every share keeps for itself: computing a norm costs
// less than waiting for another share to do it.
struct Stream {
  float *s, *y, *mean, *inverse;
};

class Steps {
 public:
  Steps(const LayerStepCall& call, const StepAttention& attention,
        float* workspace, int width)
      : call_(call), attention_(attention), width_(width) {
    const int64_t rows = call.rows;
    const auto take = [&](int64_t floats) {
      float* piece = workspace;
      workspace += PadRow(floats);
      return piece;
    };
    const int64_t keys = call.heads * call.d_key;
    const int64_t values = call.heads * call.d_value;
    shared_.heads = {take(rows * keys), take(rows * keys), take(rows * values),
                     take(rows * values)};
    shared_.product = take(rows * call.width);
    shared_.hidden = take(rows * call.hidden);
    shared_.up = take(rows * call.hidden);
    products_ = {rows, width, workspace};
    streams_ = workspace + Products::Floats(rows) * width;
    norm_.eps = call.norm_eps;
    norm_.kind = call.norm_kind;
    // One row has too few heads for a hand-over: the share that makes a head's
    // queries, keys and values attends with them too.
    by_heads_ = rows == 1 && call.heads % width == 0 && call.d_key % 4 == 0 &&
                call.d_value % 4 == 0;
  }

  static int64_t StreamFloats(const LayerStepCall& call) {
    return 2 * PadRow(call.rows * call.width) + 2 * PadRow(call.rows);
  }

  int64_t phases() const { return call_.count * LayerPhases() + 1; }

  void Run(int64_t phase, int64_t share) const {
    const int64_t layer = phase / LayerPhases();
    if (layer == call_.count) {
      Finish(share);
      return;
    }
    const int64_t of_layer = phase % LayerPhases();
    const int64_t attention = of_layer / kAttentionPhases;
    if (attention == call_.attentions) {
      FeedForward(layer, of_layer % kAttentionPhases, share);
    } else {
      Attention(layer, attention, of_layer % kAttentionPhases, share);
    }
  }

 private:
  int64_t LayerPhases() const {
    return call_.attentions * kAttentionPhases + kFeedForwardPhases;
  }

  Stream StreamOf(int64_t share) const {
    const int64_t floats = PadRow(call_.rows * call_.width);
    float* s = streams_ + share * StreamFloats(call_);
    return {s, s + floats, s + 2 * floats, s + 2 * floats + PadRow(call_.rows)};
  }

  bool IsFirst(int64_t layer, int64_t sublayer) const {
    return layer == 0 && sublayer == 0;
  }

  const LayerStepNorm& NormOf(int64_t layer, int64_t sublayer) const {
    const LayerStepLayer& w = call_.layers[layer];
    return sublayer == call_.attentions ? w.norm : w.attention[sublayer].norm;
  }

  // The bias of a sublayer's last map, which the residual pass adds.
  const float* BiasOf(int64_t layer, int64_t sublayer) const {
    const LayerStepLayer& w = call_.layers[layer];
    return sublayer == call_.attentions ? w.linear2.bias
                                        : w.attention[sublayer].out.bias;
  }

  // s = residual + (x + bias), y = norm(s), over some rows.
  void Normed(const Range& rows, const float* residual, const float* x,
              const float* bias, const LayerStepNorm& norm, float* s, float* y,
              const Stream& own) const {
    const ResidualNormTensors t = {residual, x, bias,     norm.gamma, norm.beta,
                                   s,        y, own.mean, own.inverse};
    ResidualNormForwardRows(norm_, rows.begin, rows.end, call_.width, t);
  }

  // Closes the sublayer before and returns what this one reads, [rows, D].
  const float* Enter(int64_t layer, int64_t sublayer, int64_t share) const {
    const Stream own = StreamOf(share);
    const Range all = {0, call_.rows};
    if (IsFirst(layer, sublayer)) {
      if (!call_.pre_norm) return call_.x;
      Normed(all, nullptr, call_.x, nullptr, NormOf(0, 0), nullptr, own.y, own);
      return own.y;
    }
    const bool first_of_layer = sublayer == 0;
    const int64_t before = first_of_layer ? call_.attentions : sublayer - 1;
    const int64_t layer_before = first_of_layer ? layer - 1 : layer;
    const bool after_x = IsFirst(layer_before, before);
    const float* bias = BiasOf(layer_before, before);
    if (call_.pre_norm) {
      Normed(all, after_x ? call_.x : own.s, shared_.product, bias,
             NormOf(layer, sublayer), own.s, own.y, own);
    } else {
      Normed(all, after_x ? call_.x : own.y, shared_.product, bias,
             NormOf(layer_before, before), nullptr, own.y, own);
    }
    return own.y;
  }

  // What follows the last sublayer: a norm, if there is one, of the rows of
  // this share; a head reads all rows, so every share then computes them for
  // itself.
  void Finish(int64_t share) const {
    const Stream own = StreamOf(share);
    if (call_.head.weight == nullptr) {
      Last(Part(call_.rows, share, width_), call_.out, own);
      return;
    }
    Last({0, call_.rows}, own.y, own);
    products_.Run(own.y, call_.width, call_.head, call_.outputs,
                  products_.PieceOf(call_.outputs, share), share, call_.out);
  }

  void Last(const Range& rows, float* to, const Stream& own) const {
    if (call_.count == 0) {
      LastNorm(rows, call_.x, to, own);
      return;
    }
    const int64_t last = call_.count - 1;
    const float* bias = BiasOf(last, call_.attentions);
    if (call_.pre_norm) {
      const bool normed = call_.last_norm.gamma != nullptr;
      Normed(rows, own.s, shared_.product, bias, call_.last_norm,
             normed ? nullptr : to, normed ? to : nullptr, own);
      return;
    }
    Normed(rows, own.y, shared_.product, bias, NormOf(last, call_.attentions),
           nullptr, to, own);
    if (call_.last_norm.gamma != nullptr) LastNorm(rows, to, to, own);
  }

  // to = norm(x) with the norm after the layers, or x.
  void LastNorm(const Range& rows, const float* x, float* to,
                const Stream& own) const {
    const bool normed = call_.last_norm.gamma != nullptr;
    Normed(rows, nullptr, x, nullptr, call_.last_norm, normed ? nullptr : to,
           normed ? to : nullptr, own);
  }

  // A sublayer's last map, without its bias, which the residual pass adds.
  void LastMap(const float* x, int64_t inputs, const float* weight,
               int64_t share) const {
    products_.Run(x, inputs, {weight, nullptr}, call_.width,
                  products_.PieceOf(call_.width, share), share,
                  shared_.product);
  }

  void Attention(int64_t layer, int64_t index, int64_t kind,
                 int64_t share) const {
    const LayerStepAttentionWeights& w = call_.layers[layer].attention[index];
    const LayerStepRows& rows = shared_.heads;
    const int64_t keys = call_.heads * call_.d_key;
    const int64_t values = call_.heads * call_.d_value;
    if (kind == 0) {
      const float* y = Enter(layer, index, share);
      const Range heads = Part(call_.heads, share, width_);
      const auto piece = [&](int64_t outputs, int64_t width) {
        if (!by_heads_) return products_.PieceOf(outputs, share);
        return Piece{{0, 1}, {heads.begin * width, heads.end * width}};
      };
      const Piece of_keys = piece(keys, call_.d_key);
      products_.Run(y, call_.width, w.query, keys, of_keys, share,
                    rows.queries);
      products_.Run(y, call_.width, w.key, keys, of_keys, share, rows.keys);
      products_.Run(y, call_.width, w.value, values,
                    piece(values, call_.d_value), share, rows.values);
      if (by_heads_) {
        attention_.Attend({layer, index, share, 0, 1, heads.begin, heads.end},
                          rows);
      }
    } else if (kind == 1) {
      if (by_heads_) return;
      LayerStepPart part = {layer, index, share, 0, call_.rows, 0, call_.heads};
      if (call_.rows >= width_) {
        const Range own = Part(call_.rows, share, width_);
        part.row_begin = own.begin;
        part.row_end = own.end;
      } else {
        const Range own = Part(call_.heads, share, width_);
        part.head_begin = own.begin;
        part.head_end = own.end;
      }
      if (part.row_begin == part.row_end || part.head_begin == part.head_end) {
        return;
      }
      attention_.Attend(part, rows);
    } else {
      LastMap(rows.attended, values, w.out.weight, share);
    }
  }

  void FeedForward(int64_t layer, int64_t kind, int64_t share) const {
    const LayerStepLayer& w = call_.layers[layer];
    if (kind == 1) {
      LastMap(shared_.hidden, call_.hidden, w.linear2.weight, share);
      return;
    }
    const float* y = Enter(layer, call_.attentions, share);
    const Piece piece = products_.PieceOf(call_.hidden, share);
    if (piece.empty()) return;
    const auto [begin, end] = piece.outputs;
    const bool gated = w.linear3 != nullptr;
    const LayerStepMap first = {w.linear1.weight,
                                gated ? w.linear1.bias : nullptr};
    products_.Run(y, call_.width, first, call_.hidden, piece, share,
                  shared_.hidden);
    products_.Run(y, call_.width, {w.linear3, nullptr}, call_.hidden, piece,
                  share, shared_.up);
    SerialExecutor serial;
    for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row) {
      const int64_t at = row * call_.hidden + begin;
      float* hidden = shared_.hidden + at;
      if (gated) {
        SwigluForward({}, 1, end - begin, hidden, shared_.up + at, hidden,
                      serial);
        continue;
      }
      const float* bias = w.linear1.bias;
      BiasActivationForwardRows(
          {call_.activation, {}}, 0, 1, end - begin, hidden,
          bias == nullptr ? nullptr : bias + begin, hidden);
    }
  }

  const LayerStepCall& call_;
  const StepAttention& attention_;
  int64_t width_;
  Shared shared_;
  Products products_{0, 1, nullptr};
  float* streams_;  // one Stream per share
  ResidualNormOptions norm_;
  bool by_heads_;
};

}  // namespace
}  // namespace layer_step

int64_t LayerStepWorkspaceFloats(const LayerStepCall& call, int width) {
  const int64_t rows = call.rows;
  return 2 * PadRow(rows * call.heads * call.d_key) +
         2 * PadRow(rows * call.heads * call.d_value) +
         PadRow(rows * call.width) + 2 * PadRow(rows * call.hidden) +
         width * (layer_step::Products::Floats(rows) +
                  layer_step::Steps::StreamFloats(call));
}

void LayerSteps(const LayerStepCall& call, const StepAttention& attention,
                float* workspace, Team& team) {
  layer_step::Check(call);
  if (call.rows == 0) return;
  const layer_step::Steps steps(call, attention, workspace, team.width());
  team.Run(
      steps.phases(),
      [&](int64_t phase, int share, int) { steps.Run(phase, share); },
      [](int64_t, int) {});
}

}  // namespace tarn
