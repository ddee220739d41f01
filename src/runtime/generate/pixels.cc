#include "runtime/generate/pixels.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/executor.h"
#include "core/rng.h"
#include "kernels/logistic_mixture/logistic_mixture.h"

namespace tarn {
namespace {

// Counters of the generator reserved for one byte: more than a draw takes.
constexpr uint64_t kDrawsPerByte = 16;

void Check(bool good, const char* what, const std::string& wanted,
           const std::string& given) {
  if (!good) throw ArgumentError(what, wanted, given);
}

void CheckOptions(const ImageOptions& options) {
  Check(options.samples >= 1, "samples", "1 or more", StrCat(options.samples));
  Check(options.batch >= 0, "batch", "0 (automatic) or more",
        StrCat(options.batch));
  Check(options.temperature >= 0 && options.temperature <= 100, "temperature",
        "a number from 0 to 100", StrCat(options.temperature));
}

// Checks that the size is whole images of `bytes` each; returns their number.
int64_t CountOf(const char* what, size_t size, int64_t bytes) {
  Check(size % static_cast<size_t>(bytes) == 0, what,
        StrCat("a multiple of ", bytes, " bytes"), StrCat(size));
  return static_cast<int64_t>(size) / bytes;
}

int64_t BatchOf(const Model& model, const ImageOptions& options,
                int64_t bytes) {
  if (options.batch > 0) return options.batch;
  constexpr int64_t kStateBytes = int64_t{256} << 20, kMost = 64;
  const int64_t each =
      model.state_bytes() + bytes * model.state_bytes_per_token();
  return std::clamp<int64_t>(kStateBytes / std::max<int64_t>(each, 1), 1,
                             kMost);
}

// The last byte of an image is predicted and not read.
void CheckPositions(const Model& model, int64_t bytes) {
  Check(model.max_tokens() >= bytes - 1, "model",
        StrCat("max_positions of at least ", bytes - 1,
               ", the bytes of an image before its last"),
        StrCat(model.max_tokens()));
}

// NaN parameters would otherwise give some byte, or some likelihood.
void CheckFinite(std::span<const float> params) {
  for (const float x : params) {
    if (std::isfinite(x)) continue;
    throw NumericError("image model: parameters of a byte", "finite numbers",
                       StrCat(x, " (`tarn verify` checks the weights)"));
  }
}

// Images that are being drawn, a group of options.batch at a time.
class Drawing {
 public:
  Drawing(const Model& model, std::span<const uint8_t> given, int64_t starts,
          const ImageOptions& options, uint8_t* images)
      : model_(model),
        options_(options),
        given_(given),
        bytes_(ImageShape(model.config()).bytes()),
        given_len_(static_cast<int64_t>(given.size()) / starts),
        total_(starts * options.samples),
        outputs_(model.n_outputs()),
        images_(images),
        start_(model),
        batch_(std::min(BatchOf(model, options, bytes_), total_)),
        params_(static_cast<size_t>(batch_ * outputs_)),
        tokens_(static_cast<size_t>(batch_)) {}

  int64_t Run(const ImageProgress& progress) {
    for (int64_t first = 0; first < total_; first += batch_) {
      const int64_t count = std::min(batch_, total_ - first);
      Begin(first, count);
      for (int64_t t = given_len_; t < bytes_; ++t) {
        Draw(first, count, t);
        if (t + 1 < bytes_) Step(count);
        const int64_t drawn = bytes_ - given_len_;
        const int64_t done = first * drawn + count * (t + 1 - given_len_);
        if (progress && !progress(done, total_ * drawn)) return first;
      }
    }
    return total_;
  }

 private:
  // Starts images [first, first + count) with their given bytes and states.
  void Begin(int64_t first, int64_t count) {
    while (static_cast<int64_t>(states_.size()) < count) {
      states_.emplace_back(model_);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t beginning = (first + i) / options_.samples;
      const std::span<const uint8_t> bytes =
          given_.subspan(static_cast<size_t>(beginning * given_len_),
                         static_cast<size_t>(given_len_));
      std::copy(bytes.begin(), bytes.end(), images_ + (first + i) * bytes_);
      if (given_len_ == bytes_) continue;
      if (beginning != consumed_) Consume(beginning, bytes);
      states_[static_cast<size_t>(i)].CopyFrom(start_);
      std::copy_n(start_params_.begin(), outputs_,
                  params_.begin() + i * outputs_);
    }
  }

  void Consume(int64_t beginning, std::span<const uint8_t> bytes) {
    const std::vector<int32_t> tokens(bytes.begin(), bytes.end());
    start_.Reset();
    start_params_.resize(static_cast<size_t>(outputs_));
    model_.Prefill(start_, tokens, start_params_.data());
    consumed_ = beginning;
  }

  void Draw(int64_t first, int64_t count, int64_t t) {
    CheckFinite({params_.data(), static_cast<size_t>(count * outputs_)});
    for (int64_t i = 0; i < count; ++i) {
      Rng rng(options_.seed, static_cast<uint64_t>(first + i),
              static_cast<uint64_t>(t) * kDrawsPerByte);
      const uint8_t byte =
          LogisticMixtureSample(params_.data() + i * outputs_, outputs_ / 3,
                                rng, options_.temperature);
      images_[(first + i) * bytes_ + t] = byte;
      tokens_[static_cast<size_t>(i)] = byte;
    }
  }

  void Step(int64_t count) {
    jobs_.clear();
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(i);
      jobs_.push_back({&states_[at],
                       {&tokens_[at], 1},
                       params_.data() + i * outputs_,
                       false});
    }
    model_.StepBatch(jobs_);
  }

  const Model& model_;
  const ImageOptions& options_;
  const std::span<const uint8_t> given_;
  const int64_t bytes_, given_len_, total_, outputs_;
  uint8_t* const images_;
  State start_;                      // after beginning `consumed_`
  std::vector<float> start_params_;  // [outputs]
  int64_t consumed_ = -1;
  const int64_t batch_;
  std::vector<State> states_;    // [batch]
  std::vector<float> params_;    // [batch, outputs]
  std::vector<int32_t> tokens_;  // [batch]
  std::vector<Job> jobs_;
};

}  // namespace

ImageShape::ImageShape(const ModelConfig& config)
    : height(config.image_height),
      width(config.image_width),
      channels(config.image_channels) {
  Check(config.task == Task::kImage, "model", "an image model (task 'image')",
        StrCat("task '", Name(config.task), "'"));
}

int64_t DrawImages(const Model& model, std::span<const uint8_t> given,
                   int64_t starts, const ImageOptions& options, uint8_t* images,
                   const ImageProgress& progress) {
  const int64_t bytes = ImageShape(model.config()).bytes();
  CheckPositions(model, bytes);
  CheckOptions(options);
  Check(starts >= 0, "starts", "0 or more", StrCat(starts));
  if (starts == 0) {
    Check(given.empty(), "given", "no bytes for no images",
          StrCat(given.size()));
    return 0;
  }
  const int64_t len = CountOf("given", given.size(), starts);
  Check(len >= 1 && len <= bytes, "given",
        StrCat("1 to ", bytes, " bytes an image"), StrCat(len));
  Check(options.samples <= INT64_MAX / bytes / starts, "samples",
        "a number of images that fits into memory", StrCat(options.samples));
  return Drawing(model, given, starts, options, images).Run(progress);
}

int64_t ScoreImages(const Model& model, std::span<const uint8_t> images,
                    int64_t from, double* nats, const ImageProgress& progress) {
  const int64_t bytes = ImageShape(model.config()).bytes();
  CheckPositions(model, bytes);
  const int64_t count = CountOf("images", images.size(), bytes);
  Check(from >= 1 && from < bytes, "from", StrCat("1 to ", bytes - 1),
        StrCat(from));
  const int64_t scored = bytes - from;  // predicted by as many rows
  const int64_t outputs = model.n_outputs();
  std::vector<float> params(static_cast<size_t>(scored * outputs));
  std::vector<float> losses(static_cast<size_t>(scored));
  State state(model);
  SerialExecutor serial;  // a row takes a thousandth of the model's work
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* image = images.data() + i * bytes;
    // Byte t is predicted by the row of byte t - 1; the last predicts nothing.
    const std::vector<int32_t> tokens(image, image + bytes - 1);
    const std::span<const int32_t> all(tokens);
    StopCheck stop;
    if (progress) stop = [&] { return !progress(i * scored, count * scored); };
    state.Reset();
    try {
      model.Prefill(state, all.first(static_cast<size_t>(from - 1)), nullptr,
                    stop);
      model.Score(state, all.subspan(static_cast<size_t>(from - 1)),
                  params.data(), stop);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted) throw;
      return i;
    }
    CheckFinite(params);
    LogisticMixtureLoss({.rows = scored,
                         .n_mixtures = outputs / 3,
                         .params = params.data(),
                         .targets = image + from,
                         .losses = losses.data()},
                        serial);
    nats[i] = 0;
    for (const float loss : losses) nats[i] += double{loss};
    if (progress && !progress((i + 1) * scored, count * scored)) return i + 1;
  }
  return count;
}

}  // namespace tarn
