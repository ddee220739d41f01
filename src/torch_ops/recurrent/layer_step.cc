// One token of each sequence through transformer layers, as an RNN
// (Katharopoulos et al. 2020, eq. (16)-(20)). A step's arithmetic is small
// compared with the cost of calling a dozen operators for each layer: with
// linear or full attention one call does them all (team_steps.cc), float32 on
// the CPU. Anything else takes the composed form, the same operators one by
// one. Heads and Rest are the parts before and after an attention of any type.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/bias_activation/bias_activation.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/row_product/row_product.h"
#include "kernels/swiglu/swiglu.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/recurrent/layer_call.h"

namespace tarn::ops::layer_step {
namespace {

// Dense weights by address, and scratch that is handed out piece by piece.
class Kernels {
 public:
  explicit Kernels(const Call& in)
      : kind_(in.kind), rows_(in.x.size(0)), width_(in.x.size(1)) {
    for (const OptionalTensor& weight : in.weights) {
      held_.push_back(weight ? weight->contiguous() : at::Tensor());
    }
    values_ = held_[kValue].size(0);
    hidden_ = held_[kLinear1].size(0);
    scratch_ = EmptyDense({rows_ * (3 * width_ + 2 * hidden_ + 2)});
    next_ = scratch_.data_ptr<float>();
    y_ = Take(width_);
    sum_ = Take(width_);
    product_ = Take(width_);
    mean_ = Take(1);
    inverse_ = Take(1);
  }

  // Queries, keys and values of x.
  void Heads(const float* x, float* q, float* k, float* v) {
    const float* y = x;
    if (kind_.pre_norm) y = Normed(x, nullptr, kPlaces, kGamma1, nullptr, y_);
    Products(y, width_,
             {Map(kQuery, kQueryBias, q), Map(kKey, kKeyBias, k),
              Map(kValue, kValueBias, v)});
  }

  // The rest of the layer for x, given what its attention found.
  void Rest(const float* x, const float* attended, float* out) {
    Products(attended, values_, {Map(kOut, kPlaces, product_)});
    if (kind_.pre_norm) {
      Normed(product_, x, kOutBias, kGamma2, sum_, y_);
      FeedForwardRows(y_);
      Normed(product_, sum_, kBias2, kPlaces, out, nullptr);
    } else {
      Normed(product_, x, kOutBias, kGamma1, nullptr, y_);
      FeedForwardRows(y_);
      Normed(product_, y_, kBias2, kGamma2, nullptr, out);
    }
  }

 private:
  float* Take(int64_t width) {
    float* piece = next_;
    next_ += rows_ * width;
    return piece;
  }

  // Null where the layer has none.
  const float* Data(Place place) const {
    return place == kPlaces || !held_[place].defined()
               ? nullptr
               : held_[place].const_data_ptr<float>();
  }

  RowProductMap Map(Place weight, Place bias, float* y) const {
    return {Data(weight), Data(bias), held_[weight].size(0), y};
  }

  // Few rows are bound by reading the weights from memory; for more of them
  // torch's product is faster.
  void Products(const float* x, int64_t inputs,
                std::initializer_list<RowProductMap> maps) {
    constexpr int64_t kFew = 8;
    if (rows_ <= kFew) {
      RowProduct(x, rows_, inputs, maps.begin(),
                 static_cast<int64_t>(maps.size()), executor_);
      return;
    }
    const auto view = [](const float* data, int64_t rows, int64_t columns) {
      return at::from_blob(const_cast<float*>(data), {rows, columns},
                           at::TensorOptions(at::kFloat));
    };
    for (const RowProductMap& map : maps) {
      at::Tensor y = view(map.y, rows_, map.outputs);
      at::mm_out(y, view(x, rows_, inputs),
                 view(map.weight, map.outputs, inputs).t());
      if (map.bias == nullptr) continue;
      BiasActivationForward({}, rows_, map.outputs, map.y, map.bias, map.y,
                            executor_);
    }
  }

  // s = residual + (x + bias) and its norm; kPlaces: none. Returns y.
  float* Normed(const float* x, const float* residual, Place bias, Place gamma,
                float* s, float* y) {
    const Place beta =
        gamma == kPlaces ? kPlaces : static_cast<Place>(gamma + 1);
    ResidualNormOptions options;
    options.eps = kind_.norm_eps;
    options.kind = kind_.norm;
    const ResidualNormTensors tensors = {residual,    x,          Data(bias),
                                         Data(gamma), Data(beta), s,
                                         y,           mean_,      inverse_};
    ResidualNormForward(options, rows_, width_, tensors, executor_);
    return y;
  }

  // Writes to product_, without the last bias.
  void FeedForwardRows(const float* x) {
    float* hidden = Take(hidden_);
    if (held_[kLinear3].defined()) {
      float* up = Take(hidden_);
      Products(x, width_,
               {Map(kLinear1, kPlaces, hidden), Map(kLinear3, kPlaces, up)});
      SwigluForward({}, rows_, hidden_, hidden, up, hidden, executor_);
    } else {
      Products(x, width_, {Map(kLinear1, kPlaces, hidden)});
      const bool relu = kind_.activation == Activation::kRelu;
      BiasActivationForward(
          {relu ? Nonlinearity::kRelu : Nonlinearity::kGelu, {}}, rows_,
          hidden_, hidden, Data(kBias1), hidden, executor_);
    }
    Products(hidden, hidden_, {Map(kLinear2, kPlaces, product_)});
  }

  const Kind& kind_;
  int64_t rows_, width_, values_ = 0, hidden_ = 0;
  std::vector<at::Tensor> held_;
  at::Tensor scratch_;
  float* next_ = nullptr;
  float *y_ = nullptr, *sum_ = nullptr, *product_ = nullptr, *mean_ = nullptr,
        *inverse_ = nullptr;
  TorchExecutor executor_;
};

// What follows the last layer.
at::Tensor Last(const Kind& kind, at::Tensor x, const After& after) {
  if (after.gamma.has_value()) {
    ResidualNormArguments arguments;
    arguments.x = x;
    arguments.gamma = after.gamma;
    arguments.beta = after.beta;
    arguments.eps = kind.norm_eps;
    arguments.kind = kind.norm;
    x = ResidualNorm(arguments).y;
  }
  return after.head.has_value() ? Affine(x, *after.head, after.head_bias) : x;
}

bool KernelsServe(const std::vector<Call>& layers, const After& after) {
  const bool tangents = TangentsExist();
  for (const OptionalTensor* weight :
       {&after.gamma, &after.beta, &after.head, &after.head_bias}) {
    if (WantsGradient(*weight) || (tangents && HasTangent(*weight))) {
      return false;
    }
  }
  return std::all_of(layers.begin(), layers.end(), [&](const Call& in) {
    return KernelsServe(in, tangents);
  });
}

}  // namespace

LayersResults Steps(std::vector<Call>& layers, const at::Tensor& x,
                    const Kind& kind, const After& after) {
  return WithTorchErrors([&]() -> LayersResults {
    if (layers.empty()) return {Last(kind, x.clone(), after), {}, {}};
    for (const Call& in : layers) Check(in);
    if (KernelsServe(layers, after)) return TeamSteps(layers, x, after);
    LayersResults results{x, {}, {}};
    for (Call& in : layers) {
      in.x = results.out;
      auto [out, S, z] = ComposedStep(in);
      results.out = std::move(out);
      results.S.push_back(std::move(S));
      results.z.push_back(std::move(z));
    }
    results.out = Last(kind, results.out, after);
    return results;
  });
}

ThreeHeads Heads(const Call& in) {
  return WithTorchErrors([&]() -> ThreeHeads {
    Check(in);
    if (!KernelsServe(in, TangentsExist())) return ComposedHeads(in);
    const int64_t batch = in.x.size(0), heads = in.kind.heads;
    const auto empty = [&](Place weight) {
      return EmptyDense({batch, heads, in.weight(weight).size(0) / heads});
    };
    const at::Tensor x = in.x.contiguous();
    at::Tensor q = empty(kQuery), k = empty(kKey), v = empty(kValue);
    Kernels(in).Heads(x.const_data_ptr<float>(), q.data_ptr<float>(),
                      k.data_ptr<float>(), v.data_ptr<float>());
    return {q, k, v};
  });
}

at::Tensor Rest(const Call& in, const at::Tensor& attended) {
  return WithTorchErrors([&] {
    Check(in);
    const c10::SymInt heads = in.kind.heads;
    WantLike(kOp, "attended", attended, in.x,
             {in.x.sym_size(0), heads, in.weight(kValue).sym_size(0) / heads});
    if (!KernelsServe(in, TangentsExist()) || WantsGradient(attended)) {
      return ComposedRest(in, attended);
    }
    at::Tensor out = EmptyDense(in.x.sizes());
    const at::Tensor x = in.x.contiguous(), rows = attended.contiguous();
    Kernels(in).Rest(x.const_data_ptr<float>(), rows.const_data_ptr<float>(),
                     out.data_ptr<float>());
    return out;
  });
}

}  // namespace tarn::ops::layer_step
