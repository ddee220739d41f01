#include "train/tasks/image_data.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "core/error.h"
#include "core/hash.h"
#include "core/rng.h"
#include "data/text/records.h"

namespace tarn::train {
namespace {

// A stream of the seed for each epoch, separate from those of trainer.cc and
// batches.cc.
constexpr uint64_t kImageEpochStream = uint64_t{3} << 60;

std::string SizeText(const ImageSet& images) {
  return StrCat(images.height, " x ", images.width, " x ", images.channels);
}

// An empty set for images of the sizes of `size`.
ImageSet EmptyLike(const ImageSet& size) {
  ImageSet images;
  images.height = size.height;
  images.width = size.width;
  images.channels = size.channels;
  return images;
}

void Append(ImageSet& images, std::string_view image) {
  images.bytes += image;
  ++images.count;
}

// Holds out one image in kHoldOutOneIn, or of a few the one of least hash.
void HoldOut(const ImageSet& all, ImageData& data) {
  uint64_t least = UINT64_MAX;
  bool any = false;
  std::vector<uint64_t> ranks;
  for (int64_t i = 0; i < all.count; ++i) {
    ranks.push_back(Mix(HashBytes(all.image(i))));
    least = std::min(least, ranks.back());
    any = any || ranks.back() % kHoldOutOneIn == 0;
  }
  for (int64_t i = 0; i < all.count; ++i) {
    const bool held = any ? ranks[i] % kHoldOutOneIn == 0 : ranks[i] == least;
    Append(held ? data.held_out : data.training, all.image(i));
  }
}

// Drops from training what is held out.
void DropHeldOut(const ImageSet& all, ImageData& data) {
  std::unordered_set<std::string_view> held;
  for (int64_t i = 0; i < data.held_out.count; ++i) {
    held.insert(data.held_out.image(i));
  }
  for (int64_t i = 0; i < all.count; ++i) {
    if (held.contains(all.image(i))) {
      ++data.overlapping;
    } else {
      Append(data.training, all.image(i));
    }
  }
}

// At most `limit` images, evenly spaced.
ImageSet Thinned(ImageSet images, int64_t limit) {
  if (images.count <= limit) return images;
  ImageSet some = EmptyLike(images);
  for (int64_t i = 0; i < limit; ++i) {
    Append(some, images.image(i * images.count / limit));
  }
  return some;
}

void CheckModelSize(const ModelConfig& model, const ImageSet& images) {
  if (model.image_height == images.height &&
      model.image_width == images.width &&
      model.image_channels == images.channels) {
    return;
  }
  throw FormatError(
      "data",
      StrCat("images of the model's ", model.image_height, " x ",
             model.image_width, " x ", model.image_channels, " bytes"),
      SizeText(images));
}

}  // namespace

std::string ImageData::Describe() const {
  std::string line =
      StrCat(files, files == 1 ? " file, " : " files, ", bytes,
             " bytes: ", training.count, " images of ", SizeText(training),
             " to learn (", overlapping, " held out dropped), ", held_out_count,
             " held out");
  if (held_out.count < held_out_count) {
    line += StrCat(" (", held_out.count, " evaluated)");
  }
  return line;
}

std::unique_ptr<TaskData> ReadImageData(TrainOptions& options,
                                        const std::string& model_dir) {
  auto data = std::make_unique<ImageData>();
  ImageSet all;
  const std::vector<std::string> paths = InputFiles(options);
  for (size_t i = 0; i < paths.size(); ++i) {
    ImageSet read = ReadImages(paths[i]);
    data->bytes += read.bytes.size();
    ++data->files;
    data->file_hash = ExtendHash(data->file_hash, read.bytes);
    read = PoolImages(read, options.pool);
    if (i == 0) {
      all = EmptyLike(read);
      data->training = data->held_out = EmptyLike(read);
    }
    if (SizeText(read) != SizeText(all)) {
      throw FormatError(
          paths[i], StrCat("images of ", SizeText(all), " as in ", paths[0]),
          SizeText(read));
    }
    // The file that is held out whole comes first.
    ImageSet& to = i == 0 && !options.held_out.empty() ? data->held_out : all;
    to.bytes += read.bytes;
    to.count += read.count;
  }
  if (!options.held_out.empty()) {
    DropHeldOut(all, *data);
  } else {
    HoldOut(all, *data);
  }
  if (data->training.count == 0 || data->held_out.count == 0) {
    throw FormatError("data", "two different images or more, to hold one out",
                      StrCat(all.count, ", of which ", data->training.count,
                             " remain to learn"));
  }
  data->held_out_count = data->held_out.count;
  data->held_out = Thinned(std::move(data->held_out), options.eval_windows);
  ModelConfig& model = options.model;
  if (!model_dir.empty()) CheckModelSize(model, all);
  model.image_height = all.height;
  model.image_width = all.width;
  model.image_channels = all.channels;
  options.seq_len = all.image_bytes() - 1;
  if (options.seq_len < 1) {
    throw FormatError("data", "images of two bytes or more", SizeText(all));
  }
  if (model_dir.empty()) {
    // Tables need a row for every byte that is read.
    model.max_positions = std::max(model.max_positions, options.seq_len);
    for (const char* key : PositionKeys(model)) {
      SetKey(model, key, std::max(KeyOf<int64_t>(model, key), options.seq_len));
    }
  }
  return data;
}

int64_t ImageOrder::At(int64_t index) {
  const int64_t epoch = index / count_;
  if (epoch != epoch_) {
    Rng rng(seed_, kImageEpochStream + static_cast<uint64_t>(epoch));
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), int64_t{0});
    // Fisher-Yates.
    for (int64_t left = count_; left > 1; --left) {
      std::swap(order_[left - 1], order_[rng.Below(left)]);
    }
    epoch_ = epoch;
  }
  return order_[index % count_];
}

}  // namespace tarn::train
