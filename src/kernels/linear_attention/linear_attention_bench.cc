// Benchmark cases of linear attention: forward, gradient, step and prefill.
// Parameters: batch=1 seq_len=16384 heads=8 d_key=64 d_value=(d_key) dtype=f32
// causal=1 chunk=0 (best), layout=time_first ([B, T, H, K]) or heads_first
// ([B, H, T, K], as fast-transformers lays its tensors out).
#include "core/error.h"
#include "kernels/bench_case.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn::bench {
namespace {

// The chunk in which useful FLOP are counted, whatever is executed.
constexpr double kUsefulChunk = 16;

struct Shape {
  int64_t batch, seq_len, heads, d_key, d_value;
  DType dtype;
  bool heads_first;
  Shape(Params& params, int64_t tokens)
      : batch(params.Int("batch", 1)),
        seq_len(params.Int("seq_len", tokens)),
        heads(params.Int("heads", 8)),
        d_key(params.Int("d_key", 64)),
        d_value(params.Int("d_value", d_key)),
        dtype(params.Type("dtype")) {
    const std::string layout = params.Text("layout", "time_first");
    heads_first = layout == "heads_first";
    if (!heads_first && layout != "time_first") {
      throw ArgumentError("bench: layout", "time_first or heads_first", layout);
    }
  }
  TensorView View(void* data, int64_t width) const {
    if (!heads_first) {
      return TensorView::Dense(data, batch, seq_len, heads, width, dtype);
    }
    return {data,
            {batch, seq_len, heads, width},
            {heads * seq_len * width, width, seq_len * width},
            dtype};
  }
  double TokenHeads() const {
    return static_cast<double>(batch * seq_len * heads);
  }
};

// Owns the buffers of the views.
class Buffers {
 public:
  explicit Buffers(const Shape& shape) : shape_(shape) {}
  TensorView Take(int64_t width) {
    const int64_t count = shape_.batch * shape_.seq_len * shape_.heads * width;
    held_.emplace_back(count, shape_.dtype, held_.size() + 1);
    return shape_.View(held_.back().data(), width);
  }
  float* Floats(int64_t count) {
    held_.emplace_back(count, DType::kF32, held_.size() + 1);
    return held_.back().f32();
  }

 private:
  Shape shape_;
  std::vector<Values> held_;
};

// FLOP per token and head at chunks of C tokens (docs/kernels.md); products
// whose result has a causal half are counted by that half: 2 C becomes C.
double ForwardFlop(const Shape& s, double chunk, double halves) {
  const double K = static_cast<double>(s.d_key);
  const double V = static_cast<double>(s.d_value);
  return 4 * K * V + halves * chunk * (K + V);
}
double GradientFlop(const Shape& s, double chunk, double halves) {
  const double K = static_cast<double>(s.d_key);
  const double V = static_cast<double>(s.d_value);
  return 10 * K * V + halves * chunk * (3 * K + 2 * V);
}

class Parallel : public Case {
 protected:
  Parallel(Params& params, int threads, bool backward)
      : shape_(params, 16384), buffers_(shape_) {
    options_.causal = params.Int("causal", 1, 0) != 0;
    options_.chunk_size = params.Int("chunk", 0, 0);
    in_.queries = buffers_.Take(shape_.d_key);
    in_.keys = buffers_.Take(shape_.d_key);
    in_.values = buffers_.Take(shape_.d_value);
    out_.out = buffers_.Take(shape_.d_value);
    out_.denominators =
        buffers_.Floats(shape_.batch * shape_.seq_len * shape_.heads);
    CheckLinearAttention(options_, in_, out_);
    const size_t bytes =
        backward ? LinearAttentionBackwardWorkspaceBytes(options_, in_, threads)
                 : LinearAttentionWorkspaceBytes(options_, in_, threads);
    workspace_ = AlignedBuffer<uint8_t>(static_cast<int64_t>(bytes));
  }
  double executed_chunk() const {
    return static_cast<double>(ChunkTokens(options_, in_, false));
  }

  Shape shape_;
  Buffers buffers_;
  LinearAttentionOptions options_;
  LinearAttentionInputs in_;
  LinearAttentionOutputs out_;
  AlignedBuffer<uint8_t> workspace_;
};

class LinearAttentionForwardCase final : public Parallel {
 public:
  LinearAttentionForwardCase(Params& params, int threads)
      : Parallel(params, threads, false) {
    const double tokens = shape_.TokenHeads();
    work_.useful_flop = tokens * ForwardFlop(shape_, kUsefulChunk, 1);
    work_.executed_flop = tokens * ForwardFlop(shape_, executed_chunk(), 2);
    const double elements =
        static_cast<double>(2 * (shape_.d_key + shape_.d_value));
    work_.bytes =
        tokens * (elements * static_cast<double>(DTypeBytes(shape_.dtype)) + 4);
  }
  void Run(Executor& executor) override {
    LinearAttentionForward(options_, in_, out_, executor, workspace_.data());
  }
};

class LinearAttentionGradientCase final : public Parallel {
 public:
  LinearAttentionGradientCase(Params& params, int threads)
      : Parallel(params, threads, true) {
    const double tokens = shape_.TokenHeads();
    work_.useful_flop = tokens * GradientFlop(shape_, kUsefulChunk, 1);
    work_.executed_flop = tokens * GradientFlop(shape_, executed_chunk(), 2);
    // q, k, dq, dk; v, o, do, dv: each once (two sweeps read q, k, v, do
    // twice).
    const double elements =
        static_cast<double>(4 * (shape_.d_key + shape_.d_value));
    work_.bytes =
        tokens * (elements * static_cast<double>(DTypeBytes(shape_.dtype)) + 4);
    grad_.out = out_.out;
    grad_.denominators = out_.denominators;
    grad_.grad_out = buffers_.Take(shape_.d_value);
    grad_.grad_queries = buffers_.Take(shape_.d_key);
    grad_.grad_keys = buffers_.Take(shape_.d_key);
    grad_.grad_values = buffers_.Take(shape_.d_value);
    SerialExecutor serial;
    AlignedBuffer<uint8_t> scratch(
        static_cast<int64_t>(LinearAttentionWorkspaceBytes(options_, in_, 1)));
    LinearAttentionForward(options_, in_, out_, serial, scratch.data());
  }
  void Run(Executor& executor) override {
    LinearAttentionBackward(options_, in_, grad_, executor, workspace_.data());
  }

 private:
  LinearAttentionGradients grad_;
};

// Step and prefill on a state: batch rows, seq_len tokens (1 for the step).
class Recurrent : public Case {
 protected:
  Recurrent(Params& params, int64_t tokens)
      : shape_(params, tokens), buffers_(shape_) {
    const int64_t states = shape_.batch * shape_.heads;
    queries_ = buffers_.Take(shape_.d_key);
    keys_ = buffers_.Take(shape_.d_key);
    values_ = buffers_.Take(shape_.d_value);
    out_ = buffers_.Take(shape_.d_value);
    state_S_ = buffers_.Floats(states * shape_.d_key * shape_.d_value);
    state_z_ = buffers_.Floats(states * shape_.d_key);
    const double K = static_cast<double>(shape_.d_key);
    const double V = static_cast<double>(shape_.d_value);
    work_.useful_flop = work_.executed_flop = shape_.TokenHeads() * 4 * K * V;
    // The state is read and written once per call, and rows of tokens once.
    work_.bytes = static_cast<double>(states) * 8 * (K * V + K) +
                  shape_.TokenHeads() * 2 * (K + V) *
                      static_cast<double>(DTypeBytes(shape_.dtype));
  }

  Shape shape_;
  Buffers buffers_;
  LinearAttentionOptions options_;
  TensorView queries_, keys_, values_, out_;
  float *state_S_, *state_z_;
};

class LinearAttentionStepCase final : public Recurrent {
 public:
  LinearAttentionStepCase(Params& params, int) : Recurrent(params, 1) {}
  void Run(Executor& executor) override {
    LinearAttentionStep(options_, queries_, keys_, values_, state_S_, state_z_,
                        out_, executor);
  }
};

class Prefill final : public Recurrent {
 public:
  Prefill(Params& params, int) : Recurrent(params, 512) {}
  void Run(Executor& executor) override {
    LinearAttentionPrefill(options_, queries_, keys_, values_, state_S_,
                           state_z_, out_, executor);
  }
};

}  // namespace

void RegisterLinearAttention(Registry& registry) {
  registry.push_back(
      {"linear_attention_forward", NewCase<LinearAttentionForwardCase>});
  registry.push_back(
      {"linear_attention_gradient", NewCase<LinearAttentionGradientCase>});
  registry.push_back(
      {"linear_attention_step", NewCase<LinearAttentionStepCase>});
  registry.push_back({"linear_attention_prefill", NewCase<Prefill>});
}

}  // namespace tarn::bench
