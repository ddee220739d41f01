// The parts made of two or three products (feed_forward/parts.cc): mlp,
// swiglu, geglu, geglu-tanh, relu2, and none.
#include "config/feed_forward_form.h"
#include "kernels/moe/passes.h"
#include "runtime/feed_forward/feed_forward.h"

namespace tarn {
namespace {

WeightMatrix LinearOf(MixerTensors& tensors, const char* name, int64_t outputs,
                      int64_t inputs, bool bias) {
  return tensors.Stack({name}, {outputs}, inputs, bias);
}

class ProductPart : public RuntimeFeedForward {
 public:
  // Matrices lie in the order in which a step reads them.
  ProductPart(const ModelConfig& layer, MixerTensors& tensors, bool bias,
              bool gated)
      : linear1_(LinearOf(tensors, "linear1", layer.d_ff, layer.d_model, bias)),
        linear3_(gated ? LinearOf(tensors, "linear3", layer.d_ff, layer.d_model,
                                  bias)
                       : WeightMatrix()),
        linear2_(
            LinearOf(tensors, "linear2", layer.d_model, layer.d_ff, bias)) {}

  int64_t bytes() const override {
    return linear1_.bytes() + linear2_.bytes() + linear3_.bytes();
  }
  int64_t hidden_width() const override { return linear1_.outputs(); }

 protected:
  static void Product(MixerBlock& block, const Rows& from, int64_t count,
                      const WeightMatrix& w, const Rows& to,
                      MatMulFinish finish = MatMulFinish::kStore) {
    PackedMatMul(from.data, from.stride, count, w, {to.data, to.stride},
                 block.executor(), finish);
  }

  const WeightMatrix linear1_, linear3_, linear2_;
};

// mlp and swiglu: the product with linear1 ends in the activation.
class FinishedPart final : public ProductPart {
 public:
  FinishedPart(const ModelConfig& layer, MixerTensors& tensors, bool gated,
               MatMulFinish finish)
      : ProductPart(layer, tensors, HasBiases(layer, !gated), gated) {
    team_ = {&linear1_, gated ? &linear3_ : nullptr, &linear2_, finish};
  }

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t) const override {
    if (team_.factor != nullptr) {
      Product(block, rows.y, rows.count, linear3_, rows.hidden);
    }
    Product(block, rows.y, rows.count, linear1_, rows.hidden, team_.finish);
    Product(block, rows.hidden, rows.count, linear2_, rows.x,
            MatMulFinish::kAdd);
  }
};

// geglu, geglu-tanh and relu2: the activation is a separate pass over the rows.
class PassedPart final : public ProductPart {
 public:
  PassedPart(const ModelConfig& layer, MixerTensors& tensors, bool gated,
             ExpertActivation activation)
      : ProductPart(layer, tensors, HasBiases(layer, /*by_itself=*/false),
                    gated),
        gated_(gated),
        activation_(activation) {}

  // A gated part's second product lies after the first.
  int64_t hidden_width() const override {
    return gated_ ? RowStride(linear1_.outputs()) + linear1_.outputs()
                  : linear1_.outputs();
  }

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t) const override {
    const int64_t d_ff = linear1_.outputs();
    const Rows one = rows.hidden;
    const Rows three = {one.data + RowStride(d_ff), one.stride};
    Product(block, rows.y, rows.count, linear1_, one);
    if (gated_) Product(block, rows.y, rows.count, linear3_, three);
    block.ForTasks(rows.count, d_ff, [&](int64_t i, int) {
      SerialExecutor serial;
      ExpertActivationRows(activation_, 1, d_ff, one[i],
                           gated_ ? three[i] : nullptr, one[i], serial);
    });
    Product(block, one, rows.count, linear2_, rows.x, MatMulFinish::kAdd);
  }

 private:
  const bool gated_;
  const ExpertActivation activation_;
};

using Made = std::unique_ptr<RuntimeFeedForward>;

Made MakeMlp(const ModelConfig& layer, MixerTensors& tensors) {
  MatMulFinish finish = MatMulFinish::kGelu;
  if (layer.activation == Activation::kRelu) finish = MatMulFinish::kRelu;
  if (layer.activation == Activation::kGeluTanh) {
    finish = MatMulFinish::kGeluTanh;
  }
  return std::make_unique<FinishedPart>(layer, tensors, /*gated=*/false,
                                        finish);
}

Made MakeSwiglu(const ModelConfig& layer, MixerTensors& tensors) {
  return std::make_unique<FinishedPart>(layer, tensors, /*gated=*/true,
                                        MatMulFinish::kSwiglu);
}

Made MakeGeglu(const ModelConfig& layer, MixerTensors& tensors) {
  return std::make_unique<PassedPart>(layer, tensors, /*gated=*/true,
                                      ExpertActivation::kGelu);
}

Made MakeGegluTanh(const ModelConfig& layer, MixerTensors& tensors) {
  return std::make_unique<PassedPart>(layer, tensors, /*gated=*/true,
                                      ExpertActivation::kGeluTanh);
}

Made MakeRelu2(const ModelConfig& layer, MixerTensors& tensors) {
  return std::make_unique<PassedPart>(layer, tensors, /*gated=*/false,
                                      ExpertActivation::kRelu2);
}

Made MakeNone(const ModelConfig&, MixerTensors&) { return nullptr; }

}  // namespace

std::vector<RuntimeFeedForwardRow> PlainFeedForwards() {
  return {{"mlp", MakeMlp},     {"swiglu", MakeSwiglu},
          {"none", MakeNone},   {"geglu", MakeGeglu},
          {"relu2", MakeRelu2}, {"geglu-tanh", MakeGegluTanh}};
}

}  // namespace tarn
