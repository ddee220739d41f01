#include "runtime/quantise/calibration.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "runtime/quantise/compensate.h"
#include "runtime/quantise/observed_format.h"
#include "runtime/weights/packer.h"

namespace tarn {
namespace {

// Of second moments that are taken in one pass over a layer.
constexpr int64_t kMomentBytes = int64_t{1} << 30;
constexpr int64_t kRowsAtOnce = 32;  // of weights, for each worker

// The layer of a tensor "layers.3.attention...."; -1: none.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t layer = -1;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() ? layer : -1;
}

// A source some of whose tensors are in memory, in blocks.
class OverlaySource final : public WeightSource {
 public:
  OverlaySource(const WeightSource& source, const TensorEncodings& encodings,
                const std::map<std::string, std::vector<uint8_t>>& made)
      : source_(source) {
    std::vector<WeightTensor> tensors = source.tensors();
    for (WeightTensor& tensor : tensors) {
      const auto blocks = made.find(tensor.name);
      made_.push_back(blocks == made.end() ? nullptr : &blocks->second);
      if (made_.back() != nullptr) {
        tensor.encoding = encodings.at(tensor.name);
      }
    }
    SetTensors(std::move(tensors));
  }
  std::string path() const override { return source_.path(); }
  std::string Where(const WeightTensor& tensor, int64_t at) const override {
    return source_.Where(source_.tensors()[IndexOf(tensor)], at);
  }

 private:
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    const WeightTensor& tensor = tensors()[index];
    if (made_[index] == nullptr) {
      source_.ReadStored(source_.tensors()[index], rows, columns, out);
      return;
    }
    const Encoding& encoding = *tensor.encoding;
    const int64_t row_bytes = encoding.Bytes(tensor.columns());
    const int64_t bytes = encoding.Bytes(columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r, out += bytes) {
      std::memcpy(
          out,
          made_[index]->data() + r * row_bytes + encoding.Bytes(columns.begin),
          static_cast<size_t>(bytes));
    }
  }
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    if (made_[index] == nullptr) {
      source_.Read(source_.tensors()[index], rows, columns, out);
      return;
    }
    const Encoding& encoding = *tensors()[index].encoding;
    std::vector<uint8_t> row(
        static_cast<size_t>(encoding.Bytes(columns.size())));
    for (int64_t r = rows.begin; r < rows.end; ++r, out += columns.size()) {
      ReadStoredPart(index, {r, r + 1}, columns, row.data());
      encoding.widen(row.data(), columns.size(), out);
    }
  }

  const WeightSource& source_;
  std::vector<const std::vector<uint8_t>*> made_;  // of tensors()
};

}  // namespace

// Packs a layer as float32 in matrices whose inputs are watched, where they
// have rows that are rounded.
class Calibration::Watched final : public Packer {
 public:
  // A tensor, or one of its `several` matrices, as rows of a matrix.
  struct Part {
    std::string tensor;
    int64_t first = 0, rows = 0;  // rows of `inputs` numbers of the tensor
  };
  struct Observed {
    std::vector<Part> parts;  // that are rounded
    int64_t inputs = 0;
    std::unique_ptr<InputMoments> moments;  // while they are taken
    std::unique_ptr<ObservedFormat> format;
  };

  Watched(const WeightSource& source, const WeightPlan& plan,
          const TensorEncodings& encodings, Executor& executor)
      : Packer(source, plan, executor),
        encodings_(encodings),
        executor_(executor) {}

  WeightMatrix Matrix(const std::vector<NamedRows>& parts,
                      int64_t inputs) override {
    std::vector<Part> rounded;
    for (const NamedRows& part : parts) {
      if (encodings_.count(part.weight) != 0) {
        rounded.push_back({part.weight, 0, part.rows});
      }
    }
    first_ = matrices_.size();
    watch_ = !rounded.empty();
    if (watch_) Add(std::move(rounded), inputs);
    return Packer::Matrix(parts, inputs);
  }
  std::vector<WeightMatrix> Matrices(const std::string& name, int64_t count,
                                     int64_t outputs, int64_t inputs) override {
    first_ = matrices_.size();
    watch_ = encodings_.count(name) != 0;
    for (int64_t i = 0; watch_ && i < count; ++i) {
      Add({{name, i * outputs, outputs}}, inputs);
    }
    return Packer::Matrices(name, count, outputs, inputs);
  }
  std::vector<std::unique_ptr<Observed>>& matrices() { return matrices_; }

 protected:
  const WeightFormat& FormatOf(const WeightTensor& tensor,
                               int64_t index) override {
    return watch_ ? *matrices_[first_ + static_cast<size_t>(index)]->format
                  : Packer::FormatOf(tensor, index);
  }

 private:
  void Add(std::vector<Part> parts, int64_t inputs) {
    auto matrix = std::make_unique<Observed>();
    matrix->parts = std::move(parts);
    matrix->inputs = inputs;
    Observed* at = matrix.get();
    matrix->format = std::make_unique<ObservedFormat>(
        [this, at](const float* rows, int64_t stride, int64_t count) {
          if (at->moments == nullptr) return;
          at->moments->Add(rows, stride, count, executor_);
        });
    matrices_.push_back(std::move(matrix));
  }

  const TensorEncodings& encodings_;
  Executor& executor_;
  std::vector<std::unique_ptr<Observed>> matrices_;
  size_t first_ = 0;  // of those being packed
  bool watch_ = false;
};

Calibration::Calibration(std::shared_ptr<const WeightSource> source,
                         std::shared_ptr<const WeightSource> ends,
                         const ModelConfig& config,
                         const TensorEncodings& encodings, CalibrationText text,
                         Executor& executor, std::function<void()> tick)
    : source_(std::move(source)),
      ends_(std::move(ends)),
      config_(config),
      encodings_(encodings),
      text_(std::move(text)),
      executor_(executor),
      tick_(std::move(tick)) {
  if (config.arch != Arch::kDecoder) {
    throw ArgumentError("calibration: model",
                        StrCat("one of arch '", Name(Arch::kDecoder), "'"),
                        StrCat("arch '", Name(config.arch), "'"));
  }
  if (text_.tokens.empty()) {
    throw ArgumentError("calibration: text", "at least one token", "none");
  }
  for (const int32_t token : text_.tokens) {
    if (token >= 0 && token < config.vocab_size) continue;
    throw ArgumentError("calibration: text",
                        StrCat("ids in [0, ", config.vocab_size, ")"),
                        StrCat(token));
  }
}

Calibration::~Calibration() = default;

template <typename F>
void Calibration::ForPieces(Forward& forward, const F& f) {
  const std::span<const int32_t> tokens = text_.tokens;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t end =
        std::min(tokens.size(), begin + static_cast<size_t>(text_.sequence));
    state_->Reset();
    state_->Reserve(static_cast<int64_t>(end - begin));
    while (begin < end) {
      tick_();
      forward.Clear();
      forward.Add(*state_, tokens.subspan(begin, end - begin));
      f(static_cast<int64_t>(begin));
      begin += static_cast<size_t>(forward.rows());
    }
  }
}

void Calibration::StartRows() {
  const WeightPlan plan(config_, nullptr, false);
  Packer packer(*ends_, plan, executor_);
  weights_.decoder = MakeDecoderEnds(packer, config_);
  weights_.decoder.layers.resize(static_cast<size_t>(config_.n_layers));
  state_ =
      std::make_unique<SequenceState>(std::make_shared<StateLayout>(config_));
  const int64_t width = config_.d_model;
  x_.resize(text_.tokens.size() * static_cast<size_t>(width));
  Forward forward(config_, weights_, nullptr, executor_);
  ForPieces(forward, [&](int64_t first) {
    forward.Embed({x_.data() + first * width, width});
    state_->position += forward.rows();
  });
}

void Calibration::RoundMatrix(Watched& watched, size_t index) {
  Watched::Observed& matrix = *watched.matrices()[index];
  matrix.moments->Finish(executor_);
  const Compensation compensation(*matrix.moments, text_.lambda, executor_);
  matrix.moments.reset();
  for (const Watched::Part& part : matrix.parts) {
    tick_();
    const WeightTensor& tensor = *source_->Find(part.tensor);
    const Encoding& encoding = *encodings_.at(part.tensor);
    const GroupScheme& scheme = *encoding.scheme;
    const int64_t bytes = scheme.RowBytes(matrix.inputs);
    const int64_t each = tensor.columns() / matrix.inputs;
    std::vector<uint8_t>& blocks = made_[part.tensor];
    blocks.resize(static_cast<size_t>(tensor.rows() * each * bytes));
    // A tensor of several matrices is read by whole ones.
    const int64_t rows = std::max(kRowsAtOnce / each, int64_t{1}) * each;
    const int64_t tasks = (part.rows + rows - 1) / rows;
    executor_.ParallelFor(tasks, [&](int64_t task, int) {
      const int64_t begin = part.first + task * rows;
      const int64_t count = std::min(rows, part.first + part.rows - begin);
      std::vector<float> numbers(static_cast<size_t>(count * matrix.inputs));
      source_->ReadRows(tensor, {begin / each, (begin + count) / each},
                        numbers.data());
      uint8_t* to = blocks.data() + begin * bytes;
      compensation.Round(numbers.data(), count, scheme, to);
      for (int64_t r = 0; r < count / each; ++r) {
        RequireRounded(*source_, tensor, begin / each + r, encoding,
                       to + r * each * bytes);
      }
    });
  }
}

void Calibration::RoundLayer() {
  if (done_ == 0) StartRows();
  made_.clear();
  LayerWeights& layer = weights_.decoder.layers[static_cast<size_t>(done_)];
  const WeightPlan plan(config_, nullptr, false);
  const int64_t width = config_.d_model;
  const auto handed = [&](const Forward& forward, int64_t first) {
    handed_width_ = std::max(handed_width_, forward.passed_width());
    handed_.resize(text_.tokens.size() * static_cast<size_t>(handed_width_));
    return Rows{handed_.data() + first * handed_width_, handed_width_};
  };
  {
    const WeightPlan wide(config_, &kF32Weights, false);
    Watched watched(*source_, wide, encodings_, executor_);
    layer = MakeDecoderLayer(watched, config_, done_, passed_vectors_);
    // Products of one worker come in order.
    SerialExecutor serial;
    Forward forward(config_, weights_, nullptr, serial);
    auto& matrices = watched.matrices();
    for (size_t next = 0, end = 0; next < matrices.size(); next = end) {
      int64_t bytes = 0;
      for (; end < matrices.size(); ++end) {
        Watched::Observed& matrix = *matrices[end];
        bytes += matrix.inputs * matrix.inputs * int64_t{sizeof(double)};
        if (end > next && bytes > kMomentBytes) break;
        matrix.moments = std::make_unique<InputMoments>(matrix.inputs);
      }
      std::vector<float> others;  // what the layer would hand on
      ForPieces(forward, [&](int64_t first) {
        const Rows own = handed(forward, first);
        piece_.assign(x_.begin() + first * width,
                      x_.begin() + (first + forward.rows()) * width);
        others.assign(own.data, own.data + forward.rows() * own.stride);
        forward.RunOnly(done_, {piece_.data(), width},
                        {others.data(), own.stride});
      });
      for (size_t i = next; i < end; ++i) RoundMatrix(watched, i);
    }
    layer = {};
  }
  const OverlaySource rounded(*source_, encodings_, made_);
  Packer packer(rounded, plan, executor_);
  layer = MakeDecoderLayer(packer, config_, done_, passed_vectors_);
  Forward forward(config_, weights_, nullptr, executor_);
  ForPieces(forward, [&](int64_t first) {
    forward.RunOnly(done_, {x_.data() + first * width, width},
                    handed(forward, first));
  });
  layer = {};
  ++done_;
}

const std::vector<uint8_t>* Calibration::Blocks(const WeightTensor& tensor) {
  const int64_t layer = LayerOf(tensor.name);
  if (layer < 0) return nullptr;
  if (layer + 1 < done_) {
    throw ArgumentError("calibration: tensor",
                        StrCat("one of layer ", done_ - 1, " or later"),
                        tensor.name);
  }
  while (done_ <= layer) RoundLayer();
  const auto blocks = made_.find(tensor.name);
  return blocks == made_.end() ? nullptr : &blocks->second;
}

}  // namespace tarn
