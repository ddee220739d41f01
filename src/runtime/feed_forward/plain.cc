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

  int phases() const override { return 2; }
  int64_t units(int phase) const override {
    return phase == 0 ? linear1_.panels() : linear2_.panels();
  }
  // A gated part's share of linear3 comes first: both have the same panels.
  const void* Reads(int phase, int64_t unit) const override {
    if (phase == 1) return linear2_.Panel(unit);
    return linear3_.outputs() > 0 ? linear3_.Panel(unit) : linear1_.Panel(unit);
  }

 protected:
  static void Product(MixerBlock& block, const Rows& from, int64_t count,
                      const WeightMatrix& w, const Rows& to,
                      MatMulFinish finish = MatMulFinish::kStore) {
    PackedMatMul(from.data, from.stride, count, w, {to.data, to.stride},
                 block.executor(), finish);
  }

  void StepFirst(const FeedForwardRows& rows, Rows three, MatMulFinish finish,
                 const StepShare& share) const {
    StepShare before = share;
    before.next = linear1_.Panel(share.begin);
    if (linear3_.outputs() > 0) {
      RunProducts({{.w = &linear3_, .x = rows.y, .y = three}}, before);
    }
    RunProducts(
        {{.w = &linear1_, .x = rows.y, .y = rows.hidden, .finish = finish}},
        share);
  }
  void StepLast(const FeedForwardRows& rows, const StepShare& share) const {
    RunProducts({{.w = &linear2_, .x = rows.hidden, .y = rows.x}}, share);
  }

  const WeightMatrix linear1_, linear3_, linear2_;
};

// mlp and swiglu: the product with linear1 ends in the activation.
class FinishedPart final : public ProductPart {
 public:
  FinishedPart(const ModelConfig& layer, MixerTensors& tensors, bool gated,
               MatMulFinish finish)
      : ProductPart(layer, tensors, HasBiases(layer, !gated), gated),
        finish_(finish) {}

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t) const override {
    if (linear3_.outputs() > 0) {
      Product(block, rows.y, rows.count, linear3_, rows.hidden);
    }
    Product(block, rows.y, rows.count, linear1_, rows.hidden, finish_);
    Product(block, rows.hidden, rows.count, linear2_, rows.x,
            MatMulFinish::kAdd);
  }

  void Step(MixerBlock&, const FeedForwardRows& rows,
            const StepShare& share) const override {
    if (share.phase == 0) {
      StepFirst(rows, rows.hidden, finish_, share);
    } else {
      StepLast(rows, share);
    }
  }

 private:
  const MatMulFinish finish_;
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
    const Rows one = rows.hidden, three = Three(rows);
    Product(block, rows.y, rows.count, linear1_, one);
    if (gated_) Product(block, rows.y, rows.count, linear3_, three);
    block.ForTasks(rows.count, d_ff, [&](int64_t i, int) {
      Activate(rows, i, {0, d_ff});
    });
    Product(block, one, rows.count, linear2_, rows.x, MatMulFinish::kAdd);
  }

  void Step(MixerBlock&, const FeedForwardRows& rows,
            const StepShare& share) const override {
    if (share.phase == 1) return StepLast(rows, share);
    StepFirst(rows, Three(rows), MatMulFinish::kStore, share);
    for (int64_t i = 0; i < rows.count; ++i) {
      Activate(rows, i, ColumnsOfPanels(linear1_, share));
    }
  }

 private:
  Rows Three(const FeedForwardRows& rows) const {
    return {rows.hidden.data + RowStride(linear1_.outputs()),
            rows.hidden.stride};
  }
  void Activate(const FeedForwardRows& rows, int64_t i, StepColumns own) const {
    SerialExecutor serial;
    float* one = rows.hidden[i] + own.begin;
    ExpertActivationRows(activation_, 1, own.count, one,
                         gated_ ? Three(rows)[i] + own.begin : nullptr, one,
                         serial);
  }

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
