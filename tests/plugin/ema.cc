#include "ema.h"

#include <cmath>

#include "runtime/mixer/mixer.h"

namespace tarn::plugin {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const int64_t d = layer.d_model;
  return {{"in_projection.weight", {d, d}},
          {"decay", {d}},
          {"out_projection.weight", {d, d}}};
}

StateSpec State(const ModelConfig& layer) {
  return {{.name = "average", .shape = {layer.d_model}}};
}

class Ema final : public RuntimeMixer {
 public:
  Ema(const ModelConfig& layer, MixerTensors& tensors)
      : kept_(tensors.Vector("decay")) {
    const int64_t d = layer.d_model;
    in_ = tensors.Stack({"in_projection"}, {d}, d, /*biases=*/false);
    out_ = tensors.Stack({"out_projection"}, {d}, d, /*biases=*/false);
    const float least = static_cast<float>(Least(layer));
    for (float& x : kept_) x = least + (1 - least) / (1 + std::exp(-x));
  }

  int64_t units(int) const override { return width(); }

  void Mix(MixerBlock& block, int64_t layer) const override {
    block.ForTasks(static_cast<int64_t>(block.segments.size()),
                   block.rows() * width(), [&](int64_t i, int) {
                     Run(block, block.segments[static_cast<size_t>(i)], layer,
                         0, width());
                   });
  }

  void Step(MixerBlock& block, const StepShare& share) const override {
    Run(block, block.segments.front(), share.layer, share.begin, share.end);
  }

  const void* Reads(const MixerBlock& block, int64_t layer, int,
                    int64_t unit) const override {
    return block.segments.front().state->Tensor(layer, 0) + unit;
  }

 private:
  int64_t width() const { return static_cast<int64_t>(kept_.size()); }

  void Run(MixerBlock& block, const Segment& segment, int64_t layer,
           int64_t begin, int64_t end) const {
    float* average = segment.state->Tensor(layer, 0);
    for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
      for (int64_t c = begin; c < end; ++c) {
        const float a = kept_[static_cast<size_t>(c)];
        average[c] = a * average[c] + (1.0f - a) * block.in[r][c];
        block.out[r][c] = average[c];
      }
    }
  }

  std::vector<float> kept_;  // a
};

}  // namespace

void RegisterEma() {
  static const bool done = [] {
    RegisterMixer(
        {.name = "ema",
         .family = "ema",
         .sections = {},
         .can = {.bidirectional = false, .recurrent = true, .rotary = false},
         .check = nullptr,
         .weights = Weights,
         .state = State,
         .cost = nullptr,
         .keys = {{.name = "ema_least",
                   .help = "of what a row keeps of the past, in 'ema'",
                   .type = RealKey{0.0, 0.9, 0.0},
                   .key = "least"}}});
    RegisterRuntimeMixer({"ema", nullptr,
                          [](const ModelConfig& layer, MixerTensors& tensors)
                              -> std::unique_ptr<RuntimeMixer> {
                            return std::make_unique<Ema>(layer, tensors);
                          }});
    return true;
  }();
  (void)done;
}

}  // namespace tarn::plugin
