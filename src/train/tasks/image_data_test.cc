#include "train/tasks/image_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"

namespace tarn::train {
namespace {

// `count` different images of 4 x 6 bytes as an IDX file.
ImageSet Images(int64_t count, uint64_t seed = 1) {
  ImageSet images;
  images.count = count;
  images.height = 4;
  images.width = 6;
  images.channels = 1;
  Rng rng(seed);
  for (int64_t i = 0; i < count * 24; ++i) {
    images.bytes += static_cast<char>(rng.Below(256));
  }
  return images;
}

TrainOptions Options(const std::string& data,
                     const std::string& held_out = "") {
  TrainOptions options;
  options.model.task = Task::kImage;
  options.data = {data};
  options.held_out = held_out;
  options.eval_windows = 1000;
  return options;
}

const ImageData& Read(TrainOptions& options, std::unique_ptr<TaskData>& data,
                      const std::string& model_dir = "") {
  data = ReadImageData(options, model_dir);
  return DataOf<ImageData>(*data);
}

std::set<std::string> SetOf(const ImageSet& images) {
  std::set<std::string> set;
  for (int64_t i = 0; i < images.count; ++i) set.emplace(images.image(i));
  return set;
}

TEST(ImageDataTest, HoldsOutByContentAndSetsTheSizes) {
  const TemporaryFolder dir;
  const ImageSet all = Images(400);
  TrainOptions options = Options(dir.Write("all", ImagesToIdx(all)));
  std::unique_ptr<TaskData> held;
  const ImageData& data = Read(options, held);
  EXPECT_EQ(data.training.count + data.held_out.count, 400);
  // 20 are expected; 5 sigma.
  EXPECT_NEAR(data.held_out.count, 20, 22);
  EXPECT_GE(data.held_out.count, 1);
  std::set<std::string> together = SetOf(data.training);
  together.merge(SetOf(data.held_out));
  EXPECT_EQ(together, SetOf(all));
  EXPECT_EQ(options.seq_len, 23);
  EXPECT_EQ(options.model.image_height, 4);
  EXPECT_EQ(options.model.image_width, 6);
  EXPECT_EQ(options.model.image_channels, 1);
  EXPECT_GE(options.model.max_positions, 23);
  // An image is on the same side whatever else is there.
  ImageSet half = all;
  half.count = 200;
  half.bytes.resize(200 * 24);
  options = Options(dir.Write("half", ImagesToIdx(half)));
  std::unique_ptr<TaskData> of_half;
  const std::set<std::string> held_out = SetOf(data.held_out);
  for (const std::string& image : SetOf(Read(options, of_half).held_out)) {
    EXPECT_TRUE(held_out.contains(image));
  }
  EXPECT_NE(of_half->fingerprint(), held->fingerprint());
}

TEST(ImageDataTest, AFileHeldOutWhole) {
  const TemporaryFolder dir;
  const ImageSet all = Images(30);
  // The held-out file repeats two of the others.
  ImageSet test = Images(10, 2);
  test.bytes += all.image(3);
  test.bytes += all.image(7);
  test.count = 12;
  TrainOptions options = Options(dir.Write("all", ImagesToIdx(all)),
                                 dir.Write("test", ImagesToIdx(test)));
  options.eval_windows = 4;
  std::unique_ptr<TaskData> held;
  const ImageData& data = Read(options, held);
  EXPECT_EQ(data.training.count, 28);
  EXPECT_EQ(data.overlapping, 2);
  EXPECT_EQ(data.held_out_count, 12);
  EXPECT_EQ(data.held_out.count, 4);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(data.held_out.image(i), test.image(3 * i));
  }
  EXPECT_NE(data.Describe().find("28 images of 4 x 6 x 1 to learn (2 held out "
                                 "dropped), 12 held out (4 evaluated)"),
            std::string::npos)
      << data.Describe();
}

TEST(ImageDataTest, PooledBeforeAnythingElse) {
  const TemporaryFolder dir;
  TrainOptions options = Options(dir.Write("all", ImagesToIdx(Images(40))));
  options.pool = 2;
  std::unique_ptr<TaskData> held;
  EXPECT_EQ(Read(options, held).training.width, 3);
  EXPECT_EQ(options.seq_len, 5);
  options.pool = 3;
  EXPECT_THROW(ReadImageData(options, ""), ArgumentError);
}

TEST(ImageDataTest, RefusesOtherSizesAndTooLittle) {
  const TemporaryFolder dir;
  const std::string all = dir.Write("all", ImagesToIdx(Images(40)));
  ImageSet wide = Images(6);
  std::swap(wide.height, wide.width);
  const std::string other = dir.Write("other", ImagesToIdx(wide));
  TrainOptions options = Options(all);
  options.data.push_back(other);
  try {
    ReadImageData(options, "");
    FAIL() << "nothing was thrown";
  } catch (const FormatError& error) {
    EXPECT_EQ(error.where(), other);
    EXPECT_EQ(error.given(), "6 x 4 x 1");
  }
  options = Options(all, other);
  EXPECT_THROW(ReadImageData(options, ""), FormatError);
  options = Options(dir.Write("one", ImagesToIdx(Images(1))));
  EXPECT_THROW(ReadImageData(options, ""), FormatError);
  // Everything is held out.
  options = Options(all, all);
  EXPECT_THROW(ReadImageData(options, ""), FormatError);
  // A model of another size.
  options = Options(all);
  options.model.image_height = options.model.image_width = 28;
  options.model.image_channels = 1;
  EXPECT_THROW(ReadImageData(options, "/model"), FormatError);
}

TEST(ImageOrderTest, EveryImageOnceAnEpochAndAPureFunction) {
  ImageOrder order(37, 5), again(37, 5), other(37, 6);
  std::vector<int64_t> epochs[2];
  for (int64_t i = 0; i < 74; ++i) epochs[i / 37].push_back(order.At(i));
  for (const auto& epoch : epochs) {
    std::vector<int64_t> sorted = epoch;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(sorted[i], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // From the middle, and backwards.
  EXPECT_EQ(again.At(50), epochs[1][13]);
  EXPECT_EQ(again.At(2), epochs[0][2]);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 37; ++i) first.push_back(other.At(i));
  EXPECT_NE(first, epochs[0]);
  ImageOrder single(1, 0);
  EXPECT_EQ(single.At(9), 0);
}

}  // namespace
}  // namespace tarn::train
