// Which tensors of a GGUF file make those of the published model, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/weight_view.h"

namespace tarn {

/// What a row fills in, in both directions: reading, a GGUF file is there and
/// the published tensors are made of its tensors; writing, the published
/// tensors are there and GGUF's exist as names and shapes alone
/// (WeightPart::Named). A row says once how a published tensor is made of
/// GGUF's; ReversedView runs it backwards. Functions throw FormatError that
/// names the tensor.
class GgufTensors {
 public:
  /// To read: file is GgufWeights of it.
  static GgufTensors OfFile(std::shared_ptr<const WeightSource> file);
  /// To write: published as Publish gives it.
  static GgufTensors OfPublished(std::shared_ptr<const WeightSource> published);

  bool writes() const { return file_ == nullptr; }

  /// Whether the model has a tensor: the file `name`, or, when writing, the
  /// published model `published`.
  bool Has(const std::string& published, const std::string& name) const;
  /// A tensor of the file with this shape, of PyTorch's order. Axes of 1 that
  /// begin it may be absent: files that llama.cpp writes again lack them.
  WeightPart operator()(const std::string& name,
                        const std::vector<int64_t>& shape);
  /// The published tensor is this part.
  void Add(const std::string& published, WeightPart part);
  /// The published tensor is this one of the file as it is.
  void Move(const std::string& published, const std::string& name);
  /// The same where the model has it.
  void MoveIf(const std::string& published, const std::string& name);
  /// Move of `published`.weight from `name`.weight and, where the model has
  /// them, of their biases.
  void MoveLinear(const std::string& published, const std::string& name);
  /// The same numbers in another shape: `shape` of the published tensor,
  /// `stored` in the file.
  void MoveAs(const std::string& published, const std::string& name,
              const std::vector<int64_t>& shape,
              const std::vector<int64_t>& stored);
  /// The numbers of a tensor of the file in this shape, whatever shape it has;
  /// `stored`: when writing.
  WeightPart Numbers(const std::string& name, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& stored);
  /// When writing, a tensor of the file that no published one gives.
  void Write(const std::string& name, std::vector<int64_t> shape,
             std::vector<float> numbers);
  /// When writing, another tensor of the file that is a published one.
  void WriteCopy(const std::string& name, const std::string& published);
  /// Drops tensors of the file by the beginning of their names.
  void Skip(const std::string& prefix);
  /// Throws for a tensor that was not asked for: of the file, or a published
  /// one for which the architecture has no place.
  void RequireAllRead() const;

  /// The published tensors; of a file.
  std::shared_ptr<const WeightSource> Published(const std::string& path);
  /// The file's tensors; when writing.
  std::shared_ptr<const WeightSource> File();

 private:
  struct Made {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> numbers;
  };
  std::shared_ptr<const WeightSource> file_, published_;
  std::vector<WeightView::Tensor> tensors_;
  std::vector<Made> made_;
  std::vector<WeightView::Tensor> copies_;
  std::vector<std::string> read_, skipped_;
};

/// The rows of a rotated projection [heads * width, inputs], or of its bias,
/// in the order of Hugging Face's classes, from a tensor whose heads have the
/// two halves of their rows interleaved: llama.cpp's converter permutes those
/// of `llama` and of Granite's models. inputs 0: a bias.
WeightPart UnpermutedHeads(GgufTensors& from, const std::string& name,
                           int64_t heads, int64_t width, int64_t inputs);

}  // namespace tarn
