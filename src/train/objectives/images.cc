// Images: every byte from those before it, as a mixture of logistics.
#include <numbers>

#include "torch_ops/layers/layers.h"
#include "train/objectives/evaluate.h"
#include "train/objectives/objective.h"
#include "train/tasks/image_data.h"

namespace tarn::train {
namespace {

// Held-out images of a forward pass: no gradient is kept.
constexpr int64_t kImagesAtOnce = 16;

// Inputs [B, n - 1] int64, all bytes of B images but the last; targets
// [B, n - 1] uint8, all but the first, which is given.
struct ImageRows final : TrainingRows {
  torch::Tensor inputs, targets;

  // Leaves what is here of a sequence that is cut over ranks.
  void TakePiece(const nn::SequenceRanks* ranks) {
    cut = {ranks, inputs.size(1)};
    inputs = cut.Piece(inputs);
    targets = cut.Piece(targets).contiguous();
  }
};

ImageRows MakeImageRows(const ImageSet& images,
                        const std::vector<int64_t>& which) {
  const int64_t n = images.image_bytes();
  const torch::Tensor bytes =
      torch::empty({static_cast<int64_t>(which.size()), n}, torch::kUInt8);
  uint8_t* row = bytes.data_ptr<uint8_t>();
  for (const int64_t i : which) {
    const std::string_view image = images.image(i);
    std::copy(image.begin(), image.end(), row);
    row += n;
  }
  ImageRows rows;
  rows.inputs = bytes.slice(1, 0, n - 1).to(torch::kInt64);
  rows.targets = bytes.slice(1, 1, n).contiguous();
  return rows;
}

// The loss of every predicted byte in nats: [B, n - 1].
torch::Tensor Losses(nn::ModelImpl& model, const ImageRows& rows) {
  // [B, n - 1, 3 * n_mixtures]
  const torch::Tensor params = LogitsOf(model, rows.inputs, rows.cut);
  return ops::LogisticMixtureLoss(params.flatten(0, 1),
                                  rows.targets.flatten().to(params.device()))
      .view_as(rows.inputs);
}

class ImageObjective final : public Objective {
 public:
  explicit ImageObjective(const RunPlan& plan)
      : options_(plan.state.options),
        data_(DataOf<ImageData>(*plan.data)),
        order_(data_.training.count, options_.seed) {}

  std::unique_ptr<TrainingRows> RowsOf(const Part& part) override {
    std::vector<int64_t> which;
    for (int64_t row = 0; row < part.count; ++row) {
      // Images are numbered through all updates.
      which.push_back(order_.At(part.pass * part.rows + part.begin + row));
    }
    auto rows =
        std::make_unique<ImageRows>(MakeImageRows(data_.training, which));
    rows->weight = rows->scale = part.share(options_.seq_len);
    rows->tokens = part.counts_rows() ? part.count * options_.seq_len : 0;
    if (part.sequence != nullptr) {
      rows->TakePiece(part.sequence);
    }
    return rows;
  }

  // The loss is the mean over the bytes of a part: parts have equally many.
  PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) override {
    return {Losses(model, static_cast<const ImageRows&>(rows)).mean()};
  }

  void Describe(const UpdateTotals&, StepFigures& figures) const override {
    figures.bits_per_dim = figures.loss / std::numbers::ln2;
  }

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence* sequence,
                       StepFigures& figures) override {
    const EvalMode eval(model);
    const ImageSet& images = data_.held_out;
    double nats = 0;
    for (int64_t first = 0; first < images.count; first += kImagesAtOnce) {
      std::vector<int64_t> which;
      for (int64_t i = first; i < std::min(first + kImagesAtOnce, images.count);
           ++i) {
        which.push_back(i);
      }
      ImageRows rows = MakeImageRows(images, which);
      if (sequence != nullptr) rows.TakePiece(sequence);
      nats += Losses(model, rows).sum(torch::kFloat64).item<double>();
    }
    if (sequence != nullptr) sequence->Sum({&nats, 1});
    figures.val_loss =
        nats / static_cast<double>(images.count * options_.seq_len);
    figures.val_bits_per_dim = *figures.val_loss / std::numbers::ln2;
  }

  // Drawing an image byte by byte would read all of it again for every byte
  // here; `tarn draw` does that in constant time. So this reports on one image.
  std::string Sample(nn::ModelImpl& model) override {
    const EvalMode eval(model);
    const torch::Tensor bits =
        Losses(model, MakeImageRows(data_.held_out, {0}))[0] /
        std::numbers::ln2;
    const int64_t half = bits.numel() / 2;
    std::string text = "first held-out image:";
    if (half > 0) {
      text += StrCat(" upper half ",
                     bits.slice(0, 0, half).mean().item<float>(), ",");
    }
    return text + StrCat(" lower half ",
                         bits.slice(0, half).mean().item<float>(),
                         " bits per byte");
  }

 private:
  const TrainOptions& options_;
  const ImageData& data_;
  ImageOrder order_;
};

}  // namespace

std::unique_ptr<Objective> MakeImageObjective(const RunPlan& plan) {
  return std::make_unique<ImageObjective>(plan);
}

}  // namespace tarn::train
