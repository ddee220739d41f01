// The gated recurrences from plain torch operators, chunk by chunk. With
// gamma = exp(gates), E_ij = gamma_{j+1} ... gamma_i and F_i = gamma_0 ...
// gamma_i of a chunk, its queries read
//   O = (Q * F) S + tril(sum_c q_ic k_jc E_ijc) U,   S' = F_C S + (K * E_C)^T U
// where U are the values or, under the delta rule, U = beta R with
//   (I + strict(sum_c k_ic k_jc E_ijc) Diag(beta)) R = V - (K * F) S
// (Yang et al. 2024, arXiv 2412.06464, section 3.3, with products in place of
// sums of logarithms: a gate of -inf is a factor 0, and no difference of sums
// arises.) The low-rank pair adds a second set of keys, `writes`, whose values
// are what `reads` find (Found).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {
namespace {

constexpr int64_t kChunk = 64;  // a gate a head or token
constexpr int64_t kChannelChunk =
    16;  // a gate a channel: pairs take C^2 K numbers

// One call of whole sequences. Everything is [B, HV, T, width] in the compute
// type; gamma has a width of 1 or K.
class Chunks {
 public:
  // kept [B, T] bool: tokens that are no pads; undefined: those of in.lengths.
  explicit Chunks(const GatedCall& in, at::Tensor kept = {})
      : seq_len_(in.queries.sym_size(1).guard_int(__FILE__, __LINE__)),
        kept_(std::move(kept)) {
    if (!kept_.defined()) {
      kept_ = KeptPositions({}, in.lengths, in.queries.sym_size(1));
    }
    const c10::SymInt group = in.values.sym_size(2) / in.queries.sym_size(2);
    const at::ScalarType type = ComputeType(in.queries);
    queries_ = Kept(Heads(Wide(in.queries), group)) * in.scale;
    keys_ = Kept(Heads(Wide(in.keys), group));
    values_ = Kept(Heads(Wide(in.values), 1));
    gamma_ = Kept(Logarithms(in)).exp();
    if (in.delta()) betas_ = Kept(Heads(in.betas->to(type).unsqueeze(-1), 1));
    if (in.bonus.has_value()) {
      bonus_ = in.bonus->to(type).unsqueeze(1);  // [HV, 1, K]
    }
    if (in.dplr()) {
      reads_ = Kept(Heads(Wide(*in.reads), 1));
      writes_ = Kept(Heads(Wide(*in.writes), 1));
    }
    state_ =
        in.initial_state.has_value()
            ? *in.initial_state
            : at::zeros_symint({in.queries.sym_size(0), in.values.sym_size(2),
                                in.queries.sym_size(3), in.values.sym_size(3)},
                               values_.options());
  }

  // out [B, T, HV, V] and the last state.
  std::pair<at::Tensor, at::Tensor> Run() {
    const int64_t chunk = gamma_.sym_size(-1) == 1 ? kChunk : kChannelChunk;
    std::vector<at::Tensor> out = {values_.narrow(2, 0, 0)};
    for (int64_t begin = 0; begin < seq_len_; begin += chunk) {
      out.push_back(Next(begin, std::min(chunk, seq_len_ - begin)));
    }
    const at::Tensor rows = at::cat(out, 2);
    return {Kept(rows).transpose(1, 2), state_};
  }

 private:
  // [B, T, H, width] as [B, H group, T, width].
  static at::Tensor Heads(const at::Tensor& x, const c10::SymInt& group) {
    const at::Tensor heads = x.transpose(1, 2);
    return group == 1 ? heads : heads.repeat_interleave_symint(group, 1);
  }

  // x with 0 at pads, which then neither decay nor write nor read. NaN in them
  // spreads neither to a result nor to a gradient, as nothing is computed with
  // it.
  at::Tensor Kept(const at::Tensor& x) const {
    if (!kept_.defined()) return x;
    return at::where(kept_.unsqueeze(1).unsqueeze(-1), x, Zero(x));
  }

  at::Tensor Logarithms(const GatedCall& in) const {
    if (!in.gates.has_value()) {
      return at::zeros_symint({1, 1, in.queries.sym_size(1), 1},
                              values_.options());
    }
    const at::Tensor gates = in.gates->to(values_.scalar_type());
    if (gates.dim() == 4) return gates.transpose(1, 2);
    if (gates.dim() == 3) return gates.transpose(1, 2).unsqueeze(-1);
    return gates.view_symint({1, gates.sym_size(0), 1, 1})
        .expand_symint({1, gates.sym_size(0), in.queries.sym_size(1), 1});
  }

  // sum_c x_ic y_jc E_ijc, with E [.., C, C, 1 or K].
  static at::Tensor Scores(const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& decays) {
    if (decays.sym_size(-1) == 1) {
      return at::matmul(x, y.transpose(-1, -2)) * decays.squeeze(-1);
    }
    return (x.unsqueeze(-2) * y.unsqueeze(-3) * decays).sum(-1);
  }

  // Rows of E or F one token later, `first` in front.
  static at::Tensor Later(const at::Tensor& rows, int64_t axis, double first) {
    const int64_t count = rows.size(axis);
    return at::cat({(Zero(rows) + first).expand_as(rows.narrow(axis, 0, 1)),
                    rows.narrow(axis, 0, count - 1)},
                   axis);
  }

  // The output of `count` tokens; the state moves past them.
  at::Tensor Next(int64_t begin, int64_t count) {
    const auto piece = [&](const at::Tensor& x) {
      return x.narrow(2, begin, count);
    };
    const at::Tensor q = piece(queries_), k = piece(keys_),
                     gamma = piece(gamma_);
    const at::Tensor index = Range(count, q);
    const at::Tensor row = index.view({count, 1, 1}),
                     column = index.view({count, 1});
    // Products begin after the key; the entries above the diagonal are 0.
    const at::Tensor pairs =
        at::where(row <= column, Zero(gamma),
                  at::where(row > column, gamma.unsqueeze(-2), Zero(gamma) + 1)
                      .cumprod(-3));
    const at::Tensor diagonal = (row == column).to(gamma.scalar_type());
    const at::Tensor decays = pairs + diagonal;
    const at::Tensor from_start = gamma.cumprod(-2);
    at::Tensor written = piece(values_);
    if (betas_.defined()) {
      const at::Tensor beta = piece(betas_);
      const at::Tensor system = Scores(k, k, pairs) * beta.transpose(-1, -2) +
                                at::eye(count, k.options());
      written =
          beta * at::linalg_solve_triangular(
                     system, written - at::matmul(k * from_start, state_),
                     /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
    }
    at::Tensor scores, read = from_start;
    if (bonus_.defined()) {
      scores = Scores(q, k, Later(decays, -3, 0)) +
               at::diag_embed((q * bonus_ * k).sum(-1));
      read = Later(from_start, -2, 1);
    } else {
      scores = Scores(q, k, decays);
    }
    at::Tensor out = at::matmul(q * read, state_) + at::matmul(scores, written);
    // The decay of each key from its token to the end of the chunk.
    const at::Tensor left = decays.select(-3, count - 1);
    at::Tensor added = at::matmul((k * left).transpose(-1, -2), written);
    if (reads_.defined()) {
      const at::Tensor b = piece(writes_);
      const at::Tensor found = Found(piece(reads_), k, b, Later(decays, -3, 0),
                                     Later(from_start, -2, 1), written);
      out = out + at::matmul(Scores(q, b, decays), found);
      added = added + at::matmul((b * left).transpose(-1, -2), found);
    }
    state_ = from_start.select(-2, count - 1).unsqueeze(-1) * state_ + added;
    return out;
  }

  // What the low-rank pair reads from the states before the tokens, Z of
  //   (I - strict(sum_c c_ic b_jc E_{i-1,j,c})) Z
  //       = (C * F_{i-1}) S + strict(sum_c c_ic k_jc E_{i-1,j,c}) V.
  at::Tensor Found(const at::Tensor& c, const at::Tensor& k,
                   const at::Tensor& b, const at::Tensor& decays,
                   const at::Tensor& from_start,
                   const at::Tensor& values) const {
    const at::Tensor system =
        at::eye(c.size(-2), c.options()) - Scores(c, b, decays);
    return at::linalg_solve_triangular(
        system,
        at::matmul(c * from_start, state_) +
            at::matmul(Scores(c, k, decays), values),
        /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  }

  int64_t seq_len_;
  at::Tensor kept_, queries_, keys_, values_, gamma_, betas_, bonus_, reads_,
      writes_, state_;
};

// What a call may have for each token besides queries, keys, values and gates.
constexpr OptionalTensor GatedCall::*kTokenMembers[] = {
    &GatedCall::betas, &GatedCall::reads, &GatedCall::writes};

// [N, T] bool: which tokens belong to which packed sequence.
at::Tensor Members(const at::Tensor& bounds, const at::Tensor& queries) {
  const at::Tensor tokens = Range(queries.sym_size(1), queries);
  const c10::SymInt count = bounds.sym_size(0) - 1;
  const auto column = [&](int64_t first) {
    return bounds.narrow_symint(0, first, count).to(at::kLong).unsqueeze(1);
  };
  return (tokens >= column(0)).logical_and(tokens < column(1));
}

// Runs packed sequences whose bounds cannot be read, because a compiler or a
// transform follows them: each sequence is a separate row in which the other
// tokens are pads, which costs as many times the work as there are sequences.
std::pair<at::Tensor, at::Tensor> RunMembers(const GatedCall& in) {
  const at::Tensor members = Members(*in.cu_seqlens, in.queries);
  const c10::SymInt count = members.sym_size(0);
  const auto rows = [&](const at::Tensor& x) {
    std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
    sizes[0] = count;
    return x.expand_symint(sizes);
  };
  GatedCall all = in;
  all.cu_seqlens.reset();
  all.queries = rows(in.queries);
  all.keys = rows(in.keys);
  all.values = rows(in.values);
  if (in.gates.has_value() && in.gates->dim() > 1) all.gates = rows(*in.gates);
  for (auto member : kTokenMembers) {
    if ((in.*member).has_value()) all.*member = rows(*(in.*member));
  }
  const auto [out, state] = Chunks(all, members).Run();
  return {out.sum(0, /*keepdim=*/true), state};
}

// Each packed sequence by itself.
std::pair<at::Tensor, at::Tensor> RunPacked(const GatedCall& in) {
  if (IsTraced(*in.cu_seqlens)) return RunMembers(in);
  const at::Tensor bounds = HostLongs(*in.cu_seqlens);
  const int64_t* at = bounds.const_data_ptr<int64_t>();
  const int64_t count = bounds.size(0) - 1;
  std::vector<at::Tensor> out = {Wide(in.values.narrow(1, 0, 0))}, states;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t tokens = at[i + 1] - at[i];
    const auto piece = [&](const at::Tensor& x) {
      return x.narrow(1, at[i], tokens);
    };
    GatedCall one = in;
    one.cu_seqlens.reset();
    one.queries = piece(in.queries);
    one.keys = piece(in.keys);
    one.values = piece(in.values);
    if (in.gates.has_value() && in.gates->dim() > 1)
      one.gates = piece(*in.gates);
    for (auto member : kTokenMembers) {
      if ((in.*member).has_value()) one.*member = piece(*(in.*member));
    }
    if (in.initial_state.has_value()) {
      one.initial_state = in.initial_state->narrow(0, i, 1);
    }
    const auto [rows, state] = Chunks(one).Run();
    out.push_back(rows);
    states.push_back(state);
  }
  if (states.empty()) {
    return {out[0], at::zeros({0, in.values.size(2), in.queries.size(3),
                               in.values.size(3)},
                              out[0].options())};
  }
  return {at::cat(out, 1), at::cat(states, 0)};
}

}  // namespace

GatedResults ComposedGated(const GatedCall& in) {
  CheckGated(in);
  CheckSequences(in.name(), in.lengths, in.cu_seqlens, in.queries.sym_size(1));
  const auto [out, state] =
      in.cu_seqlens.has_value() ? RunPacked(in) : Chunks(in).Run();
  const at::Tensor none = at::empty({0}, state.options());
  return {out.to(in.values.scalar_type()).contiguous(),
          in.return_state ? state.contiguous() : none, none};
}

}  // namespace tarn::ops
