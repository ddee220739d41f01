#include "runtime/mixer/parallel.h"

#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/matmul/matmul.h"

namespace tarn {
namespace {

// The tensors of one of the mixers.
class BranchTensors final : public MixerTensors {
 public:
  BranchTensors(MixerTensors& all, size_t branch)
      : all_(all), prefix_(BranchPrefix(branch)) {}

  std::vector<float> Vector(const std::string& name) override {
    return all_.Vector(prefix_ + name);
  }
  WeightMatrix Stack(const std::vector<std::string>& names,
                     const std::vector<int64_t>& rows, int64_t inputs,
                     bool biases) override {
    std::vector<std::string> whole;
    for (const std::string& name : names) whole.push_back(prefix_ + name);
    return all_.Stack(whole, rows, inputs, biases);
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override {
    return all_.Matrices(prefix_ + name, count, outputs, inputs);
  }
  int64_t layer() const override { return all_.layer(); }
  std::map<std::string, std::vector<float>>& passed() override {
    return all_.passed();
  }

 private:
  MixerTensors& all_;
  const std::string prefix_;
};

// A row of the block's `extra` is free for the mixer whose turn it is:
//   [in | out | extra of that mixer]
class Parallel final : public RuntimeMixer {
 public:
  Parallel(const ModelConfig& layer, MixerTensors& tensors)
      : d_model_(layer.d_model) {
    in_room_ = RowStride(d_model_);  // also holds a result before it is scaled
    for (size_t i = 0; i < layer.branches.size(); ++i) {
      const ModelConfig& view = layer.branches[i];
      BranchTensors own(tensors, i);
      branches_.push_back({MakeRuntimeMixer(view, own),
                           static_cast<float>(view.branch_factor)});
      const RuntimeMixer& mixer = *branches_.back().mixer;
      in_room_ = std::max(in_room_, RowStride(mixer.in_width()));
      out_room_ = std::max(out_room_, RowStride(mixer.out_width()));
      extra_room_ = std::max(extra_room_, mixer.row_floats());
    }
  }

  int64_t in_width() const override { return d_model_; }
  int64_t out_width() const override { return d_model_; }
  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const Branch& branch : branches_) bytes += branch.mixer->bytes();
    return bytes;
  }
  int64_t passed_width() const override {
    int64_t width = 0;
    for (const Branch& branch : branches_) {
      width = std::max(width, branch.mixer->passed_width());
    }
    return width;
  }
  int64_t row_floats() const override {
    return in_room_ + out_room_ + extra_room_;
  }
  int64_t WorkerFloats(const MixerBlock& block) const override {
    int64_t floats = 0;
    for (const Branch& branch : branches_) {
      floats = std::max(floats, branch.mixer->WorkerFloats(block));
    }
    return floats;
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    if (block.rows() == 0) return;
    const StateLayout& layout = block.segments.front().state->layout();
    Add(block, [&](const RuntimeMixer& mixer, int64_t branch) {
      mixer.Mix(block, layout.BranchLayer(layer, branch));
    });
  }
  void MixSequences(MixerBlock& block) const override {
    Add(block,
        [&](const RuntimeMixer& mixer, int64_t) { mixer.MixSequences(block); });
  }

  // Its parts need each other's products.
  bool one_region() const override { return false; }
  int64_t shares() const override { return 0; }
  void Step(MixerBlock&, int64_t, int64_t, int64_t, int) const override {}
  const void* Reads(const SequenceState&, int64_t, int64_t) const override {
    return nullptr;
  }

 private:
  struct Branch {
    std::unique_ptr<RuntimeMixer> mixer;
    float factor = 1.0f;
  };

  // Where the block's rows are, put back in the end.
  class Places {
   public:
    explicit Places(MixerBlock& block)
        : block_(block), in_(block.in), out_(block.out), extra_(block.extra) {}
    ~Places() {
      block_.in = in_;
      block_.out = out_;
      block_.extra = extra_;
    }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;

   private:
    MixerBlock& block_;
    const Rows in_, out_, extra_;
  };

  // out = the sum of what the mixers make of `in`, by mix(mixer, number).
  template <typename F>
  void Add(MixerBlock& block, const F& mix) const {
    const Places whole(block);
    const Rows in = block.in, out = block.out, extra = block.extra;
    block.in = extra;
    block.out = {extra.data + in_room_, extra.stride};
    block.extra = {extra.data + in_room_ + out_room_, extra.stride};
    for (size_t i = 0; i < branches_.size(); ++i) {
      const RuntimeMixer& mixer = *branches_[i].mixer;
      Product(block, in, mixer.in(), block.in, MatMulFinish::kStore);
      mix(mixer, static_cast<int64_t>(i));
      AddResult(block, branches_[i], i == 0, out);
    }
  }

  // out = or += factor W_out rows of the block's out.
  void AddResult(MixerBlock& block, const Branch& branch, bool first,
                 Rows out) const {
    const WeightMatrix& w = branch.mixer->out();
    if (branch.factor == 1.0f && w.outputs() > 0) {
      Product(block, block.out, w, out,
              first ? MatMulFinish::kStore : MatMulFinish::kAdd);
      return;
    }
    Product(block, block.out, w, block.in, MatMulFinish::kStore);
    block.ForRows(2 * d_model_, [&](int64_t row) {
      if (first) std::fill_n(out[row], d_model_, 0.0f);
      AddScaledRow(block.in[row], branch.factor, d_model_, out[row]);
    });
  }

  // to = or += W from; an empty W is the identity on rows of the model's width.
  void Product(MixerBlock& block, Rows from, const WeightMatrix& w, Rows to,
               MatMulFinish finish) const {
    if (w.outputs() > 0) {
      PackedMatMul(from.data, from.stride, block.rows(), w,
                   {to.data, to.stride}, block.executor(), finish);
      return;
    }
    block.ForRows(d_model_, [&](int64_t row) {
      std::copy_n(from[row], d_model_, to[row]);
    });
  }

  const int64_t d_model_;
  std::vector<Branch> branches_;
  int64_t in_room_ = 0, out_room_ = 0, extra_room_ = 0;
};

}  // namespace

std::unique_ptr<RuntimeMixer> MakeParallelRuntime(const ModelConfig& layer,
                                                  MixerTensors& tensors) {
  return std::make_unique<Parallel>(layer, tensors);
}

}  // namespace tarn
