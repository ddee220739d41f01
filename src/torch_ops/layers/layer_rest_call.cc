#include "torch_ops/layers/layer_rest_call.h"

#include "torch_ops/common/memory.h"

namespace tarn::ops::layer_rest {
namespace {

void WantNorm(const char* gamma_name, const at::Tensor& gamma,
              const char* beta_name, const at::Tensor& beta,
              const at::Tensor& x, NormKind kind) {
  if (gamma.defined()) {
    WantLike(kOp, gamma_name, gamma, x, {x.sym_size(-1)});
  }
  if (beta.defined()) WantLike(kOp, beta_name, beta, x, {x.sym_size(-1)});
  const bool wanted = gamma.defined() && kind == NormKind::kLayer;
  if (wanted == beta.defined()) return;
  throw ArgumentError(
      StrCat(kOp, ": ", beta_name),
      wanted ? "a tensor with a layer norm" : "none without a layer norm",
      beta.defined() ? "a tensor" : "none");
}

}  // namespace

void Check(const TensorList& in, const Settings& settings) {
  const at::Tensor &x = in[kX], &mixed = in[kMixed];
  if (x.dim() < 1 || mixed.dim() != x.dim() || in[kOutWeight].dim() != 2 ||
      in[kWeight1].dim() != 2) {
    throw ShapeError(
        StrCat(kOp, ": x, mixed, out_weight, weight1"),
        "[..., D], [..., V], [D, V] and [F, D]",
        StrCat(x.dim(), ", ", mixed.dim(), ", ", in[kOutWeight].dim(), " and ",
               in[kWeight1].dim(), " axes"));
  }
  const c10::SymInt width = x.sym_size(-1), hidden = in[kWeight1].sym_size(0);
  WantLike(kOp, "mixed", mixed, x, WithLast(x, mixed.sym_size(-1)));
  WantLike(kOp, "out_weight", in[kOutWeight], x, {width, mixed.sym_size(-1)});
  if (in[kOutBias].defined()) {
    WantLike(kOp, "out_bias", in[kOutBias], x, {width});
  }
  WantNorm("gamma", in[kGamma], "beta", in[kBeta], x, settings.norm());
  WantLike(kOp, "weight1", in[kWeight1], x, {hidden, width});
  WantLike(kOp, "bias1", in[kBias1], x, {hidden});
  WantLike(kOp, "weight2", in[kWeight2], x, {width, hidden});
  if (in[kBias2].defined()) WantLike(kOp, "bias2", in[kBias2], x, {width});
  WantNorm("end_gamma", in[kEndGamma], "end_beta", in[kEndBeta], x,
           settings.norm());
  (void)settings.relu();  // checks the name
  if (!settings.dropout.empty() && settings.dropout.size() != 3) {
    throw ArgumentError(StrCat(kOp, ": dropout"), "three probabilities or none",
                        StrCat(settings.dropout.size()));
  }
  for (const double probability : settings.dropout) {
    (void)MakeDropoutKey({probability, 0});
    if (probability == 0.0) continue;
    if (!settings.seeds || settings.seeds->scalar_type() != at::kLong ||
        settings.seeds->sym_sizes() != c10::SymIntArrayRef({3})) {
      throw ArgumentError(StrCat(kOp, ": seeds"), "int64 [3] with dropout > 0",
                          settings.seeds ? "another tensor" : "none");
    }
  }
}

at::Tensor Chain(const TensorList& in, const Settings& settings) {
  ResidualNormArguments first;
  first.x = Affine(in[kMixed], in[kOutWeight]);
  first.residual = in[kX];
  first.bias = NoneOr(in[kOutBias]);
  first.gamma = in[kGamma];
  first.beta = NoneOr(in[kBeta]);
  first.eps = settings.eps;
  first.kind = settings.norm();
  first.dropout = settings.At(0);
  const auto [n, s] = ResidualNorm(first);
  const bool post = in[kEndGamma].defined();
  ResidualNormArguments last;
  last.x =
      FeedForward(n, in[kWeight1], in[kBias1], in[kWeight2],
                  ParseActivation(kOp, settings.activation), settings.At(1));
  last.residual = post ? n : s;
  last.bias = NoneOr(in[kBias2]);
  last.gamma = NoneOr(in[kEndGamma]);
  last.beta = NoneOr(in[kEndBeta]);
  last.eps = settings.eps;
  last.kind = settings.norm();
  last.dropout = settings.At(2);
  const auto [y, sum] = ResidualNorm(last);
  return post ? y : sum;
}

Call::Call(const TensorList& in, const Settings& settings) {
  for (const at::Tensor& tensor : in) {
    held.push_back(tensor.defined() ? tensor.contiguous() : tensor);
  }
  options.activation =
      settings.relu() ? Nonlinearity::kRelu : Nonlinearity::kGelu;
  options.norm_kind = settings.norm();
  options.eps = settings.eps;
  DropoutOptions* const sites[] = {
      &options.mixed_dropout, &options.hidden_dropout, &options.branch_dropout};
  for (size_t site = 0; site < 3; ++site) {
    const Dropout dropout = settings.At(site);
    *sites[site] = KernelDropout(kOp, dropout.probability, dropout.seed);
  }
  shape.width = held[kX].size(-1);
  shape.mixed = held[kMixed].size(-1);
  shape.hidden = held[kWeight1].size(0);
  shape.rows = 1;
  for (int64_t i = 0; i + 1 < held[kX].dim(); ++i) {
    shape.rows *= held[kX].size(i);
  }
  weights = {Data(kOutWeight), Data(kOutBias), Data(kGamma),   Data(kBeta),
             Data(kWeight1),   Data(kBias1),   Data(kWeight2), Data(kBias2),
             Data(kEndGamma),  Data(kEndBeta)};
  tensors.x = Data(kX);
  tensors.mixed = Data(kMixed);
}

const float* Call::Data(Input place) const {
  return held[place].defined() ? held[place].const_data_ptr<float>() : nullptr;
}

void Call::Leave(const TensorList& out, int64_t rows) {
  const auto at = [&](Output place) {
    const at::Tensor& tensor = out[place];
    return tensor.numel() == 0 ? nullptr : tensor.data_ptr<float>();
  };
  tensors.y = at(kY);
  tensors.s = at(kS);
  held.push_back(EmptyDense({rows, shape.width}));
  tensors.n = held.back().data_ptr<float>();
  tensors.kept = at(kKept);
  tensors.mean = at(kMean);
  tensors.inverse = at(kInverse);
  tensors.end_s = at(kEndS);
  tensors.end_mean = at(kEndMean);
  tensors.end_inverse = at(kEndInverse);
}

TensorList Present(const TensorList& list, const at::Tensor& like) {
  TensorList present;
  for (const at::Tensor& tensor : list) {
    present.push_back(tensor.defined() ? tensor
                                       : at::empty({0}, like.options()));
  }
  return present;
}

TensorList FromLists(at::TensorList list) {
  TensorList in;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool may_lack = i == kOutBias || i == kBeta || i >= kBias2;
    in.push_back(may_lack && list[i].dim() == 1 && list[i].sym_size(0) == 0
                     ? at::Tensor()
                     : list[i]);
  }
  return in;
}

}  // namespace tarn::ops::layer_rest
