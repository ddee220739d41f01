// The recurrent forms of the attention layer: a memory that is only read, and
// causal self-attention piece by piece.
#include <algorithm>
#include <limits>

#include "torch_nn/mixers/linear_heads.h"
#include "torch_nn/mixers/attention.h"
#include "torch_ops/aft/aft.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// [B, T, heads * width] -> [B, T, heads, width].
torch::Tensor SplitHeads(const torch::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, -1});
}

[[noreturn]] void RefuseKind(const char* where, const char* wanted,
                             AttentionKind kind, const char* reason) {
  throw ArgumentError(StrCat("AttentionLayer: ", where), wanted,
                      StrCat("'", Name(kind), "', ", reason));
}

// Why a kind has no recurrent form; null where it has one.
const char* WhyNotRecurrent(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kConditionalFull:
      return "which changes its kind with the length of the whole sequence";
    case AttentionKind::kClustered:
    case AttentionKind::kImprovedClustered:
    case AttentionKind::kCausalImprovedClustered:
      return "whose clusters depend on later tokens";
    case AttentionKind::kReformer:
      return "whose buckets and chunks depend on later tokens";
    default:
      return nullptr;
  }
}

// The `kept` last of the tokens of each row, aligned at the end: row b of
// `rows` [B, t + T, ...] holds its tokens in [t - before[b], t + added[b]).
torch::Tensor AlignAtEnd(const torch::Tensor& rows, const torch::Tensor& added,
                         int64_t taken, int64_t kept) {
  const int64_t size = rows.size(1);
  // Row b moves right by T - added[b]; the same for all: a plain view.
  const torch::Tensor shift = taken - added;  // [B]
  const int64_t batch = rows.size(0);
  const bool same = batch == 0 || (shift == shift[0]).all().item<bool>();
  if (same) {
    const int64_t end = size - (batch == 0 ? 0 : shift[0].item<int64_t>());
    const int64_t begin = std::max<int64_t>(0, end - kept);
    return rows.narrow(1, begin, end - begin);
  }
  const int64_t width = std::min(size, kept);
  const torch::Tensor places =  // [B, width], clamped where there is no token
      (torch::arange(size - width, size).unsqueeze(0) - shift.unsqueeze(1))
          .clamp_min(0)
          .to(rows.device());
  return rows.index(
      {torch::arange(batch, places.options()).unsqueeze(1), places});
}

}  // namespace

AttentionState AttentionLayerImpl::MemoryState(
    const torch::Tensor& memory, const torch::Tensor& key_mask) const {
  CheckInput("memory", memory);
  if (!place_.cross) {
    throw ArgumentError("AttentionLayer: MemoryState", "cross attention",
                        "self-attention");
  }
  const int64_t n_heads = config_.n_heads;
  const int64_t key_width = n_heads * config_.d_key;
  const torch::Tensor packed = ops::Affine(
      memory, torch::cat({key_projection->weight, value_projection->weight}),
      torch::cat({key_projection->bias, value_projection->bias}));
  const torch::Tensor keys = SplitHeads(packed.slice(2, 0, key_width), n_heads);
  const torch::Tensor values = SplitHeads(packed.slice(2, key_width), n_heads);
  AttentionState state;
  state.kind = kind_;
  state.lengths =
      key_mask.defined()
          ? key_mask.sum(1).to(torch::kCPU)
          : torch::full({memory.size(0)}, memory.size(1), torch::kInt64);
  if (kind_ == AttentionKind::kFull) {
    state.keys = keys;
    state.values = values;
    state.key_mask = key_mask;
    return state;
  }
  LinearHeads in;
  in.queries = keys.slice(1, 0, 0);  // nothing is asked yet
  in.keys = keys;
  in.values = values;
  in.key_mask = key_mask;
  in.omega = omega_;
  in.causal = false;
  ops::LinearState sums;
  AttendLinearHeads(config_, in, &sums);
  state.S = sums.S;
  state.z = sums.z;
  state.extra = sums.extra;
  return state;
}

torch::Tensor AttentionLayerImpl::Read(const torch::Tensor& x,
                                       const AttentionState& memory) {
  CheckInput("x", x);
  if (!place_.cross || memory.kind != kind_ || memory.batch() != x.size(0)) {
    throw ArgumentError(
        "AttentionLayer: memory",
        StrCat("a memory of kind '", Name(kind_), "' for ", x.size(0),
               " sequences"),
        StrCat("'", Name(memory.kind), "' for ", memory.batch()));
  }
  const torch::Tensor queries = SplitHeads(
      ops::Affine(x, query_projection->weight, query_projection->bias),
      config_.n_heads);
  torch::Tensor out;
  if (kind_ == AttentionKind::kFull) {
    out = AttendKind({queries, memory.keys, memory.values}, memory.key_mask,
                     /*causal=*/false, 0);
  } else {
    LinearHeads in;
    in.queries = queries;
    in.keys = torch::empty({x.size(0), 0, config_.n_heads, config_.d_key},
                           x.options());
    in.values = torch::empty({x.size(0), 0, config_.n_heads, config_.d_value},
                             x.options());
    in.omega = omega_;
    in.causal = false;
    ops::LinearState sums = {memory.S, memory.z, memory.extra};
    out = AttendLinearHeads(config_, in, &sums);
  }
  return ops::Affine(out.flatten(2), out_projection->weight);
}

AttentionState AttentionLayerImpl::InitialState(int64_t batch) const {
  if (place_.cross || !place_.causal) {
    throw ArgumentError("AttentionLayer: InitialState", "causal self-attention",
                        place_.cross ? "cross attention (see MemoryState)"
                                     : "a layer that sees later tokens");
  }
  if (const char* reason = WhyNotRecurrent(kind_)) {
    RefuseKind("InitialState", "a kind with a recurrent form", kind_, reason);
  }
  const torch::TensorOptions like = query_projection->weight.options();
  AttentionState state;
  state.kind = kind_;
  state.lengths = torch::zeros({batch}, torch::kInt64);
  const bool wide = query_projection->weight.scalar_type() == torch::kFloat64;
  const auto sums =
      like.dtype(wide ? torch::kFloat64 : torch::kFloat32).requires_grad(false);
  const int64_t n_heads = config_.n_heads;
  if (kind_ == AttentionKind::kLinear) {
    const int64_t features =
        FeatureWidth(config_.feature_map, config_.d_key, config_.n_dims);
    state.S = torch::zeros({batch, n_heads, features, config_.d_value}, sums);
    state.z = torch::zeros({batch, n_heads, features}, sums);
    if (config_.denominator == Denominator::kSigned) {
      state.extra = torch::zeros({batch, n_heads}, sums);
    } else if (config_.stabilise) {
      state.extra = torch::zeros({batch, n_heads, features}, sums);
    }
    return state;
  }
  if (kind_ == AttentionKind::kAftSimple) {
    state.a = torch::zeros({batch, n_heads, config_.d_value}, sums);
    state.b = state.a;
    state.m =
        torch::full_like(state.a, -std::numeric_limits<double>::infinity());
    return state;
  }
  state.keys = torch::empty({batch, 0, n_heads, config_.d_key}, like);
  state.values = torch::empty({batch, 0, n_heads, config_.d_value}, like);
  return state;
}

std::pair<torch::Tensor, AttentionState> AttentionLayerImpl::Prefill(
    const torch::Tensor& x, const AttentionState& state,
    const RotaryTable& rotary, const torch::Tensor& lengths) {
  CheckInput("x", x);
  const int64_t batch = x.size(0), seq_len = x.size(1);
  if (state.kind != kind_ || state.batch() != batch || place_.cross) {
    throw ArgumentError(
        "AttentionLayer: state",
        StrCat("a state of kind '", Name(kind_), "' for ", batch, " sequences"),
        StrCat("'", Name(state.kind), "' for ", state.batch()));
  }
  PrefixMask("AttentionLayer", lengths, batch, seq_len);  // checks them
  const torch::Tensor added =
      lengths.defined() ? lengths.to(torch::kCPU)
                        : torch::full({batch}, seq_len, torch::kInt64);
  AttentionState next = state;
  Heads heads = Split(ProjectPacked(x));
  torch::Tensor out;
  if (kind_ == AttentionKind::kLinear) {
    out = PrefillLinear(heads, rotary, lengths, next);
  } else if (kind_ == AttentionKind::kAftSimple) {
    out = PrefillAftSimple(heads, added, next);
  } else {
    heads.queries = Rotate(heads.queries, rotary);
    heads.keys = Rotate(heads.keys, rotary);
    out = PrefillKept(heads, added, next);
  }
  next.lengths = state.lengths + added;
  return {ops::Affine(out.flatten(2), out_projection->weight), next};
}

torch::Tensor AttentionLayerImpl::PrefillLinear(const Heads& heads,
                                                const RotaryTable& rotary,
                                                const torch::Tensor& lengths,
                                                AttentionState& state) const {
  LinearHeads in;
  in.queries = heads.queries;
  in.keys = heads.keys;
  in.values = heads.values;
  in.key_lengths = lengths;
  in.omega = omega_;
  ops::LinearState sums = {state.S, state.z, state.extra};
  torch::Tensor out;
  if (rotary.defined() && config_.rotary_place == RotaryPlace::kAfter) {
    out = AttendTurnedAfter(config_, in, rotary, &sums);
  } else {
    in.queries = Rotate(heads.queries, rotary);
    in.keys = Rotate(heads.keys, rotary);
    out = AttendLinearHeads(config_, in, &sums);
  }
  state.S = sums.S;
  state.z = sums.z;
  state.extra = sums.extra;
  return out;
}

torch::Tensor AttentionLayerImpl::PrefillAftSimple(
    const Heads& heads, const torch::Tensor& added,
    AttentionState& state) const {
  ops::AftSimpleOptions options;
  options.causal = true;
  options.key_lengths = added;
  options.initial_state = ops::AftState{state.m, state.a, state.b};
  ops::AftSimpleResult result =
      ops::AftSimple(heads.queries, heads.keys, heads.values, options);
  state.m = result.state.m;
  state.a = result.state.a;
  state.b = result.state.b;
  return result.out;
}

// The window is that of places in one sequence: queries stand behind those that
// the kept keys had, whose results are dropped.
torch::Tensor AttentionLayerImpl::PrefillLocal(const Heads& all,
                                               const torch::Tensor& key_mask,
                                               int64_t before) const {
  const torch::Tensor gone = torch::zeros(
      {all.queries.size(0), before, config_.n_heads, config_.d_key},
      all.queries.options());
  return AttendKind({torch::cat({gone, all.queries}, 1), all.keys, all.values},
                    key_mask, /*causal=*/true, 0)
      .slice(1, before);
}

// Weights depend on places, so rows of one length at a time; most often there
// is one length.
torch::Tensor AttentionLayerImpl::PrefillAftFull(
    const Heads& heads, const torch::Tensor& added,
    const AttentionState& state) const {
  const int64_t before = state.keys.size(1), taken = heads.keys.size(1);
  std::vector<torch::Tensor> outs = {heads.values.slice(0, 0, 0)};
  std::vector<torch::Tensor> order = {torch::empty({0}, torch::kInt64)};
  const torch::Tensor lengths = std::get<0>(torch::_unique(state.lengths));
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    const int64_t length = lengths[i].item<int64_t>();
    const torch::Tensor rows = (state.lengths == length).nonzero().squeeze(1);
    const auto pick = [&](const torch::Tensor& tensor) {
      return tensor.index_select(0, rows.to(tensor.device()));
    };
    const auto joined = [&](const torch::Tensor& old,
                            const torch::Tensor& more) {
      return torch::cat({pick(old).slice(1, before - length), pick(more)}, 1);
    };
    ops::AttentionMasks masks;
    masks.causal = true;
    masks.causal_offset = length;
    masks.key_lengths = pick(added) + length;
    outs.push_back(
        ops::AftFull(pick(heads.queries), joined(state.keys, heads.keys),
                     joined(state.values, heads.values),
                     PositionBias(length, taken, length + taken), masks));
    order.push_back(rows);
  }
  const torch::Tensor back = torch::cat(order).argsort();
  return torch::cat(outs).index_select(0, back.to(heads.queries.device()));
}

torch::Tensor AttentionLayerImpl::PrefillKept(const Heads& heads,
                                              const torch::Tensor& added,
                                              AttentionState& state) const {
  const int64_t before = state.keys.size(1), taken = heads.keys.size(1);
  const Heads all = {heads.queries, torch::cat({state.keys, heads.keys}, 1),
                     torch::cat({state.values, heads.values}, 1)};
  torch::Tensor out;
  if (kind_ == AttentionKind::kAftFull) {
    out = PrefillAftFull(heads, added, state);
  } else {
    // Old keys end at `before`, new ones begin there: what a row holds is one
    // stretch, and query i stands at before + i.
    const torch::Tensor places = torch::arange(before + taken).unsqueeze(0);
    const torch::Tensor kept = (places >= before - state.lengths.unsqueeze(1)) &
                               (places < before + added.unsqueeze(1));
    const torch::Tensor key_mask = kept.all().item<bool>()
                                       ? torch::Tensor()
                                       : kept.to(heads.keys.device());
    out = kind_ == AttentionKind::kLocal
              ? PrefillLocal(all, key_mask, before)
              : AttendKind(all, key_mask, /*causal=*/true, before);
  }
  const int64_t most = kind_ == AttentionKind::kLocal
                           ? config_.local_context / 2 + 1
                           : before + taken;
  state.keys = AlignAtEnd(all.keys, added, taken, most);
  state.values = AlignAtEnd(all.values, added, taken, most);
  return out;
}

}  // namespace tarn::nn
