// Images to learn from, and the order in which they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image_files.h"
#include "train/tasks/task_data.h"

namespace tarn::train {

/// What an image model learns from: all images of one size, pooled.
struct ImageData final : TaskData {
  ImageSet training, held_out;  // held_out: those evaluated
  int64_t files = 0;
  uint64_t bytes = 0;          // of all files, unpacked and without headers
  int64_t held_out_count = 0;  // as the files have them
  int64_t overlapping = 0;     // dropped from training: equal to a held-out one
  uint64_t file_hash = 0;

  std::string Describe() const override;
  std::string TokenizerJson() const override {
    return Tokenizer::Byte().ToJson();
  }
  uint64_t fingerprint() const override { return file_hash; }
};

/// Reads the images of `options` (data, held_out, pool, eval_windows) and sets
/// the sizes in options.model, and seq_len: the bytes of an image less one, for
/// the first byte is given, not predicted. Without a held-out file one image in
/// kHoldOutOneIn is held out by a hash of its bytes, so that equal ones are on
/// the same side; with one, images that are in it are dropped from the others.
/// model_dir: as for ReadTaskData; its images must have the model's size.
/// Throws FormatError (files, sizes that differ, a side without an image) and
/// ArgumentError (--pool).
std::unique_ptr<TaskData> ReadImageData(TrainOptions& options,
                                        const std::string& model_dir);

/// Epochs of images: each holds every image once, in its own order. A pure
/// function of count, seed and index. Not thread-safe: it keeps the order of
/// the last epoch requested (8 bytes an image).
class ImageOrder {
 public:
  /// count: >= 1.
  ImageOrder(int64_t count, uint64_t seed) : count_(count), seed_(seed) {}
  /// The image at place `index` of all epochs one after the other. O(1) within
  /// an epoch, O(count) for the first of one.
  int64_t At(int64_t index);

 private:
  int64_t count_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // the epoch of order_
  std::vector<int64_t> order_;
};

}  // namespace tarn::train
