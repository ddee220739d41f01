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

// A row of the block's `extra` holds for each mixer
//   [in | out | extra of that mixer]
// since in a step all of them run at the same time.
class Parallel final : public RuntimeMixer {
 public:
  Parallel(const ModelConfig& layer, MixerTensors& tensors)
      : d_model_(layer.d_model) {
    for (size_t i = 0; i < layer.branches.size(); ++i) {
      const ModelConfig& view = layer.branches[i];
      BranchTensors own(tensors, i);
      branches_.push_back({MakeRuntimeMixer(view, own),
                           static_cast<float>(view.branch_factor)});
      Branch& branch = branches_.back();
      const RuntimeMixer& mixer = *branch.mixer;
      branch.in = room_;
      // `in` also holds a result before it is scaled.
      branch.out = branch.in + RowStride(std::max(d_model_, mixer.in_width()));
      branch.extra = branch.out + RowStride(mixer.out_width());
      room_ = branch.extra + (mixer.row_floats() + 15) / 16 * 16;
      steps_ = steps_ && mixer.phases() > 0;
      middle_ = std::max(middle_, mixer.phases());
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
  int64_t row_floats() const override { return room_; }
  int64_t WorkerFloats(const MixerBlock& block) const override {
    int64_t floats = 0;
    for (const Branch& branch : branches_) {
      floats = std::max(floats, branch.mixer->WorkerFloats(block));
    }
    return floats;
  }

  void Mix(MixerBlock& block, int64_t layer) const override {
    if (block.rows() == 0) return;
    Add(block, [&](const RuntimeMixer& mixer, MixerBlock& own, int64_t branch) {
      mixer.Mix(own, BranchLayer(block, layer, branch));
    });
  }
  void MixSequences(MixerBlock& block) const override {
    Add(block, [&](const RuntimeMixer& mixer, MixerBlock& own, int64_t) {
      mixer.MixSequences(own);
    });
  }

  // First products of all mixers; their phases, those of one number at the same
  // time; last products.
  int phases() const override { return steps_ ? middle_ + 2 : 0; }
  int64_t units(int phase) const override {
    if (phase == phases() - 1) return ColumnUnits(d_model_, kShare);
    int64_t units = 0;
    for (const Branch& branch : branches_) units += Units(branch, phase);
    return units;
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    if (share.phase == phases() - 1) return AddResults(block, share);
    int64_t first = 0;
    for (size_t i = 0; i < branches_.size(); ++i) {
      const int64_t units = Units(branches_[i], share.phase);
      StepShare own = share;
      own.begin = std::max<int64_t>(share.begin - first, 0);
      own.end = std::min(share.end - first, units);
      first += units;
      if (own.begin >= own.end) continue;
      MixerBlock rows = BlockOf(block, branches_[i]);
      const RuntimeMixer& mixer = *branches_[i].mixer;
      if (share.phase == 0) {
        Project(block, mixer, rows, own);
        continue;
      }
      own.layer = BranchLayer(block, share.layer, static_cast<int64_t>(i));
      --own.phase;
      mixer.Step(rows, own);
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    if (phase == phases() - 1) {
      const WeightMatrix& w = branches_.front().mixer->out();
      return w.outputs() > 0 ? w.Panel(unit) : nullptr;
    }
    for (size_t i = 0; i < branches_.size(); ++i) {
      const int64_t units = Units(branches_[i], phase);
      if (unit >= units) {
        unit -= units;
        continue;
      }
      const RuntimeMixer& mixer = *branches_[i].mixer;
      if (phase == 0) return PanelAt({&mixer.in()}, unit);
      return mixer.Reads(BlockOf(block, branches_[i]),
                         BranchLayer(block, layer, static_cast<int64_t>(i)),
                         phase - 1, unit);
    }
    return nullptr;
  }

 private:
  static constexpr int64_t kShare = WeightMatrix::kPanel;

  struct Branch {
    std::unique_ptr<RuntimeMixer> mixer;
    float factor = 1.0f;
    int64_t in = 0, out = 0, extra = 0;  // columns of its rows in `extra`
  };

  static int64_t BranchLayer(const MixerBlock& block, int64_t layer,
                             int64_t branch) {
    return block.segments.front().state->layout().BranchLayer(layer, branch);
  }

  // The units of one mixer in a phase before the last.
  static int64_t Units(const Branch& branch, int phase) {
    const RuntimeMixer& mixer = *branch.mixer;
    if (phase == 0) return std::max<int64_t>(mixer.in().panels(), 1);
    return phase <= mixer.phases() ? mixer.units(phase - 1) : 0;
  }

  // The block as one of the mixers sees it.
  static MixerBlock BlockOf(const MixerBlock& block, const Branch& branch) {
    MixerBlock own = block;
    const Rows all = block.extra;
    own.in = {all.data + branch.in, all.stride};
    own.out = {all.data + branch.out, all.stride};
    own.extra = {all.data + branch.extra, all.stride};
    return own;
  }

  // A share of one mixer's first product in a step.
  void Project(const MixerBlock& block, const RuntimeMixer& mixer,
               const MixerBlock& own, const StepShare& share) const {
    if (mixer.in().outputs() == 0) {
      for (int64_t row = 0; row < block.rows(); ++row) {
        std::copy_n(block.in[row], d_model_, own.in[row]);
      }
      return;
    }
    RunProducts({{.w = &mixer.in(), .x = block.in, .y = own.in}}, share);
  }

  // AddResult of all mixers for some columns of a step.
  void AddResults(const MixerBlock& block, const StepShare& share) const {
    const StepColumns own = ColumnsOf(d_model_, kShare, share);
    bool first = true;
    for (const Branch& branch : branches_) {
      const WeightMatrix& w = branch.mixer->out();
      const MixerBlock rows = BlockOf(block, branch);
      if (branch.factor == 1.0f && w.outputs() > 0) {
        RunProducts(
            {{.w = &w,
              .x = rows.out,
              .y = block.out,
              .finish = first ? MatMulFinish::kStore : MatMulFinish::kAdd}},
            share);
      } else {
        Rows results = rows.in;
        if (w.outputs() > 0) {
          RunProducts({{.w = &w, .x = rows.out, .y = rows.in}}, share);
        } else {
          results = rows.out;
        }
        for (int64_t row = 0; row < block.rows(); ++row) {
          float* out = block.out[row] + own.begin;
          if (first) std::fill_n(out, own.count, 0.0f);
          AddScaledRow(results[row] + own.begin, branch.factor, own.count, out);
        }
      }
      first = false;
    }
  }

  // out = the sum of what the mixers make of `in`, by mix(mixer, block,
  // number).
  template <typename F>
  void Add(MixerBlock& block, const F& mix) const {
    for (size_t i = 0; i < branches_.size(); ++i) {
      const RuntimeMixer& mixer = *branches_[i].mixer;
      MixerBlock own = BlockOf(block, branches_[i]);
      Product(own, block.in, mixer.in(), own.in, MatMulFinish::kStore);
      mix(mixer, own, static_cast<int64_t>(i));
      AddResult(own, branches_[i], i == 0, block.out);
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
  int64_t room_ = 0;   // floats of a row for all mixers
  int middle_ = 0;     // the most phases of one of them
  bool steps_ = true;  // whether all of them take part in a step
};

}  // namespace

std::unique_ptr<RuntimeMixer> MakeParallelRuntime(const ModelConfig& layer,
                                                  MixerTensors& tensors) {
  return std::make_unique<Parallel>(layer, tensors);
}

}  // namespace tarn
