// The recurrent forms of the attention layer: a memory that is only read, and
// causal self-attention piece by piece.
#include "pytorch/linear_heads.h"
#include "pytorch/modules_attention.h"
#include "pytorch/ops_layers.h"

namespace tarn::nn {
namespace {

using torch::indexing::Slice;

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
  in.causal = false;
  LinearSums sums;
  AttendLinearHeads(config_, in, &sums);
  state.S = sums.S;
  state.z = sums.z;
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
    out = AttendFull({queries, memory.keys, memory.values}, memory.key_mask,
                     /*causal=*/false, 0);
  } else {
    LinearHeads in;
    in.queries = queries;
    in.keys = torch::empty({x.size(0), 0, config_.n_heads, config_.d_key},
                           x.options());
    in.values = torch::empty({x.size(0), 0, config_.n_heads, config_.d_value},
                             x.options());
    in.causal = false;
    LinearSums sums = {memory.S, memory.z};
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
  if (kind_ == AttentionKind::kLinear) {
    const bool wide = query_projection->weight.scalar_type() == torch::kFloat64;
    const auto sums = like.dtype(wide ? torch::kFloat64 : torch::kFloat32);
    const int64_t features =
        FeatureWidth(config_.feature_map, config_.d_key, config_.n_dims);
    state.S =
        torch::zeros({batch, config_.n_heads, features, config_.d_value}, sums);
    state.z = torch::zeros({batch, config_.n_heads, features}, sums);
    return state;
  }
  state.keys = torch::empty({batch, 0, config_.n_heads, config_.d_key}, like);
  state.values =
      torch::empty({batch, 0, config_.n_heads, config_.d_value}, like);
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
  LinearSums sums = {state.S, state.z};
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
  return out;
}

torch::Tensor AttentionLayerImpl::PrefillKept(const Heads& heads,
                                              const torch::Tensor& added,
                                              AttentionState& state) const {
  const int64_t before = state.keys.size(1), taken = heads.keys.size(1);
  const Heads all = {heads.queries, torch::cat({state.keys, heads.keys}, 1),
                     torch::cat({state.values, heads.values}, 1)};
  // Old keys end at `before`, new ones begin there: what a row holds is one
  // stretch, and query i stands at before + i.
  const torch::Tensor places = torch::arange(before + taken).unsqueeze(0);
  const torch::Tensor kept = (places >= before - state.lengths.unsqueeze(1)) &
                             (places < before + added.unsqueeze(1));
  const torch::Tensor key_mask =
      kept.all().item<bool>() ? torch::Tensor() : kept.to(heads.keys.device());
  const torch::Tensor out = AttendFull(all, key_mask, /*causal=*/true, before);
  state.keys = AlignAtEnd(all.keys, added, taken, before + taken);
  state.values = AlignAtEnd(all.values, added, taken, before + taken);
  return out;
}

}  // namespace tarn::nn
