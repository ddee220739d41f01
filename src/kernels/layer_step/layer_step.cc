#include "kernels/layer_step/layer_step.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/row_product/row_product.h"
#include "kernels/scratch.h"
#include "kernels/swiglu/swiglu.h"

namespace tarn {
namespace {

// Of an attention: maps, Attend, the output map. Of the feed-forward network:
// its first maps with the activation, its last map.
constexpr int64_t kAttentionPhases = 3, kFeedForwardPhases = 2;

struct Range {
  int64_t begin, end;
};

Range Part(int64_t count, int64_t share, int64_t width) {
  return {count * share / width, count * (share + 1) / width};
}

// Rows up to which weights are read as they lie, which binds such products to
// memory. More rows are worth a copy of the weights in panels.
constexpr int64_t kFewRows = 8;

// What a share makes of a map's result: these rows of these outputs.
struct Piece {
  Range rows, outputs;
  bool empty() const {
    return rows.begin == rows.end || outputs.begin == outputs.end;
  }
};

// For a share of few rows, outputs: whole lines of a cache where they suffice, else
// fours, as the product wants them.
Range Outputs(int64_t outputs, int64_t share, int64_t width) {
  const int64_t unit = outputs >= 16 * width ? 16 : 4;
  const Range units = Part((outputs + unit - 1) / unit, share, width);
  return {std::min(units.begin * unit, outputs),
          std::min(units.end * unit, outputs)};
}

// What all shares read and write; a share writes its part of each.
struct Shared {
  LayerStepRows heads;
  float *product, *hidden, *up;
};

// The rows as they stand, which every share keeps for itself: a norm costs less
// than waiting for somebody to make it.
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
    gemm_ = workspace;
    workspace += GemmFloats(call) * width;
    streams_ = workspace;
    norm_.eps = call.norm_eps;
    norm_.kind = call.norm_kind;
    // One row has too few heads to hand over: who makes a head's queries, keys
    // and values attends with them too.
    by_heads_ = rows == 1 && call.heads % width == 0 && call.d_key % 4 == 0 &&
                call.d_value % 4 == 0;
  }

  // Of a share.
  static int64_t GemmFloats(const LayerStepCall& call) {
    return call.rows > kFewRows ? kGemmRowsWorkspaceFloats : 0;
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
    const ResidualNormTensors t = {residual,  x, bias, norm.gamma, norm.beta,
                                   s,         y, own.mean, own.inverse};
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

  // The rows of this share, after the last sublayer.
  void Finish(int64_t share) const {
    const Stream own = StreamOf(share);
    const Range rows = Part(call_.rows, share, width_);
    if (call_.count == 0) {
      Last(rows, call_.x, own);
      return;
    }
    const int64_t last = call_.count - 1;
    const float* bias = BiasOf(last, call_.attentions);
    const LayerStepNorm none;
    if (call_.pre_norm) {
      const bool normed = call_.last_norm.gamma != nullptr;
      Normed(rows, own.s, shared_.product, bias,
             normed ? call_.last_norm : none, normed ? nullptr : call_.out,
             normed ? call_.out : nullptr, own);
      return;
    }
    Normed(rows, own.y, shared_.product, bias,
           NormOf(last, call_.attentions), nullptr, call_.out, own);
    if (call_.last_norm.gamma != nullptr) Last(rows, call_.out, own);
  }

  // out = norm(x) with the norm after the layers, or x.
  void Last(const Range& rows, const float* x, const Stream& own) const {
    const bool normed = call_.last_norm.gamma != nullptr;
    Normed(rows, nullptr, x, nullptr, call_.last_norm,
           normed ? nullptr : call_.out, normed ? call_.out : nullptr, own);
  }

  // Of many rows, shares take blocks of outputs, and groups of rows where they
  // outnumber those.
  Piece PieceOf(int64_t outputs, int64_t share) const {
    if (call_.rows <= kFewRows) {
      return {{0, call_.rows}, Outputs(outputs, share, width_)};
    }
    const int64_t blocks = (outputs + kGemmColumns - 1) / kGemmColumns;
    const int64_t columns = std::clamp<int64_t>(blocks, 1, width_);
    const int64_t groups = width_ / columns;
    if (share >= columns * groups) return {};
    const Range some = Part(blocks, share % columns, columns);
    return {Part(call_.rows, share / columns, groups),
            {std::min(some.begin * kGemmColumns, outputs),
             std::min(some.end * kGemmColumns, outputs)}};
  }

  void Map(const float* x, int64_t inputs, const LayerStepMap& map,
           int64_t outputs, const Piece& piece, int64_t share, float* y) const {
    if (map.weight == nullptr || piece.empty()) return;
    const auto [begin, end] = piece.outputs;
    if (call_.rows <= kFewRows) {
      RowProductPart(x, call_.rows, inputs, {map.weight, map.bias, outputs, y},
                     begin, end);
      return;
    }
    GemmProblem product;
    product.rows = call_.rows;
    product.columns = outputs;
    product.depth = inputs;
    product.a = {x, inputs, false};
    product.b = {map.weight, inputs, true};
    product.c = y;
    product.c_stride = outputs;
    product.add = map.bias != nullptr;
    for (int64_t row = piece.rows.begin; product.add && row < piece.rows.end;
         ++row) {
      std::copy(map.bias + begin, map.bias + end, y + row * outputs + begin);
    }
    GemmPart(product, piece.rows.begin, piece.rows.end, begin, end,
             gemm_ + share * GemmFloats(call_));
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
        if (!by_heads_) return PieceOf(outputs, share);
        return Piece{{0, 1}, {heads.begin * width, heads.end * width}};
      };
      const Piece of_keys = piece(keys, call_.d_key);
      Map(y, call_.width, w.query, keys, of_keys, share, rows.queries);
      Map(y, call_.width, w.key, keys, of_keys, share, rows.keys);
      Map(y, call_.width, w.value, values, piece(values, call_.d_value), share,
          rows.values);
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
      Map(rows.attended, values, {w.out.weight, nullptr}, call_.width,
          PieceOf(call_.width, share), share, shared_.product);
    }
  }

  void FeedForward(int64_t layer, int64_t kind, int64_t share) const {
    const LayerStepLayer& w = call_.layers[layer];
    if (kind == 1) {
      Map(shared_.hidden, call_.hidden, {w.linear2.weight, nullptr},
          call_.width, PieceOf(call_.width, share), share, shared_.product);
      return;
    }
    const float* y = Enter(layer, call_.attentions, share);
    const Piece piece = PieceOf(call_.hidden, share);
    if (piece.empty()) return;
    const auto [begin, end] = piece.outputs;
    const bool gated = w.linear3 != nullptr;
    Map(y, call_.width, {w.linear1.weight, gated ? w.linear1.bias : nullptr},
        call_.hidden, piece, share, shared_.hidden);
    if (gated) {
      Map(y, call_.width, {w.linear3, nullptr}, call_.hidden, piece, share,
          shared_.up);
    }
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
      BiasActivationForwardRows({call_.activation, {}}, 0, 1, end - begin,
                                hidden,
                                bias == nullptr ? nullptr : bias + begin,
                                hidden);
    }
  }

  const LayerStepCall& call_;
  const StepAttention& attention_;
  int64_t width_;
  Shared shared_;
  float* gemm_;     // a workspace a share
  float* streams_;  // a Stream a share
  ResidualNormOptions norm_;
  bool by_heads_;
};

void WantMap(const LayerStepMap& map, const char* name) {
  if (map.weight == nullptr) {
    throw ArgumentError(StrCat("LayerSteps: ", name), "data",
                        "a null pointer");
  }
}

void WantNorm(const LayerStepCall& call, const LayerStepNorm& norm) {
  if (norm.gamma == nullptr) {
    throw ArgumentError("LayerSteps: norm", "data", "a null pointer");
  }
  if (norm.beta != nullptr && call.norm_kind == NormKind::kRms) {
    throw ArgumentError("LayerSteps: norm", "no beta beside an RMS norm",
                        "one");
  }
}

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

}  // namespace

int64_t LayerStepWorkspaceFloats(const LayerStepCall& call, int width) {
  const int64_t rows = call.rows;
  return 2 * PadRow(rows * call.heads * call.d_key) +
         2 * PadRow(rows * call.heads * call.d_value) +
         PadRow(rows * call.width) + 2 * PadRow(rows * call.hidden) +
         width * (Steps::GemmFloats(call) + Steps::StreamFloats(call));
}

void LayerSteps(const LayerStepCall& call, const StepAttention& attention,
                float* workspace, Team& team) {
  Check(call);
  if (call.rows == 0) return;
  const Steps steps(call, attention, workspace, team.width());
  team.Run(
      steps.phases(),
      [&](int64_t phase, int share, int) { steps.Run(phase, share); },
      [](int64_t, int) {});
}

}  // namespace tarn
