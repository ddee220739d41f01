// The denominator of signed maps: kept away from 0 by the largest size it could
// have, whose running sum the state carries.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "torch_ops/linear/mapped_attention.h"

namespace tarn::ops {
namespace {

// Below this share of its largest possible size a float32 denominator of
// terms of both signs is rounding noise.
constexpr double kTau = 1e-6;

// |phi| of every row, without gradient: [..., 1].
at::Tensor Norms(const at::Tensor& features) {
  return features.detach().square().sum(-1, /*keepdim=*/true).sqrt();
}

// [.., H, n] of key heads as [.., HV, n] of value heads.
at::Tensor ByValueHead(const at::Tensor& rows, const c10::SymInt& value_heads,
                       int64_t axis) {
  const c10::SymInt heads = rows.sym_size(axis);
  std::vector<c10::SymInt> sizes = rows.sym_sizes().vec();
  sizes.insert(sizes.begin() + axis + 1, value_heads / heads);
  std::vector<c10::SymInt> flat = rows.sym_sizes().vec();
  flat[static_cast<size_t>(axis)] = value_heads;
  return rows.unsqueeze(axis + 1).expand_symint(sizes).reshape_symint(flat);
}

// num / (sgn(den) max(|den|, tau bound)), sgn(0) = 1; rows whose bound is 0 are
// 0. The divisor has no gradient where it is clamped.
std::pair<at::Tensor, at::Tensor> DivideSigned(const at::Tensor& numerators,
                                               const at::Tensor& denominators,
                                               const at::Tensor& bound) {
  const at::Tensor least = bound * kTau;
  const at::Tensor given = denominators.detach();
  const at::Tensor hit = given.abs() < least;
  const at::Tensor divisors =
      at::where(hit, at::where(given < 0, -least, least), denominators);
  const at::Tensor empty = divisors.detach() == 0;
  const at::Tensor zero = at::zeros({}, numerators.options());
  const at::Tensor one = at::ones({}, numerators.options());
  return {at::where(empty, zero, numerators / at::where(empty, one, divisors)),
          hit.sum()};
}

// B of every query, [B, T, H, 1] before |phi(q)|, and the running sums [N, H]:
// the kernel on rows of width 1 adds |phi(k)| under the call's own masks,
// offset, packing and state.
std::pair<at::Tensor, at::Tensor> NormSums(
    const Operands& in, const MappedAttentionOptions& options,
    const at::Tensor& initial, bool return_state) {
  const at::NoGradGuard no_grad;
  Operands norms = in;
  norms.keys = Norms(in.keys);
  norms.values = at::ones_symint(norms.keys.sym_sizes(), norms.keys.options());
  norms.queries =
      at::ones_symint({in.queries.sym_size(0), in.queries.sym_size(1),
                       in.queries.sym_size(2), 1},
                      norms.keys.options());
  norms.initial_S.reset();
  norms.initial_z.reset();
  if (initial.defined()) {
    norms.initial_z = initial.detach().unsqueeze(-1);
    norms.initial_S = norms.initial_z->unsqueeze(-1);
  }
  Settings settings =
      SettingsOf(options, FeatureMap::kIdentity, Denominator::kNone);
  settings.scale = 1;
  const auto [sums, S, z, _] = CallForward(norms, settings, return_state);
  return {sums, return_state ? S.squeeze(-1).squeeze(-1) : at::Tensor()};
}

}  // namespace

// The whole sequence with a signed denominator. A column of ones next to the
// values gives phi(q).z from the same sums as the numerator.
MappedAttentionResult SignedSequence(Operands in,
                                     const MappedAttentionOptions& options,
                                     const at::Tensor& extra,
                                     bool return_state) {
  const c10::SymInt d_value = in.values.sym_size(3);
  const auto [sums, new_extra] = NormSums(in, options, extra, return_state);
  std::vector<c10::SymInt> column = in.values.sym_sizes().vec();
  column.back() = 1;
  in.values =
      at::cat({in.values, at::ones_symint(column, in.values.options())}, -1);
  if (in.initial_S.has_value()) {
    in.initial_S = at::cat({*in.initial_S, in.initial_z->unsqueeze(-1)}, -1);
  }
  const auto [rows, S, z, _] = CallForward(
      in, SettingsOf(options, FeatureMap::kIdentity, Denominator::kNone),
      return_state);
  const at::Tensor bound = ByValueHead(Norms(in.queries) * sums * options.scale,
                                       rows.sym_size(2), 2);
  MappedAttentionResult result;
  std::tie(result.out, result.clamped) = DivideSigned(
      rows.slice_symint(-1, 0, d_value), rows.slice_symint(-1, d_value), bound);
  if (return_state) {
    result.state.S = S.slice_symint(-1, 0, d_value).contiguous();
    result.state.z = S.slice_symint(-1, d_value).squeeze(-1).contiguous();
    result.state.extra = new_extra;
  }
  return result;
}

MappedAttentionResult SignedStep(const StepOperands& in,
                                 const MappedAttentionOptions& options,
                                 const at::Tensor& extra) {
  const auto [numerators, S, z] = CallStep(
      in, SettingsOf(options, FeatureMap::kIdentity, Denominator::kNone));
  const c10::SymInt value_heads = z.sym_size(1);
  const at::Tensor queries = ByValueHead(in.queries, value_heads, 1);
  const at::Tensor denominators =
      (queries * z).sum(-1, /*keepdim=*/true) * options.scale;
  at::Tensor sums = Norms(in.keys).squeeze(-1);  // [B, H]
  if (extra.defined()) sums = sums + extra.detach();
  const at::Tensor bound = ByValueHead(
      Norms(in.queries) * sums.unsqueeze(-1) * options.scale, value_heads, 1);
  MappedAttentionResult result;
  std::tie(result.out, result.clamped) =
      DivideSigned(numerators, denominators, bound);
  result.state = {S, z, sums};
  return result;
}

}  // namespace tarn::ops
