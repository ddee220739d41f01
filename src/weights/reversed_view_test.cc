// Views backwards: what a view makes of a file gives the file's bits again,
// whatever it does with rows and columns; and files written from a source.
#include "weights/reversed_view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/test_util.h"
#include "weights/test_files.h"
#include "weights/weight_file.h"

namespace tarn::testing {
namespace {

using Tensors = std::vector<WeightView::Tensor>;
using Part = std::function<WeightPart(const char*, std::vector<int64_t>)>;

// Each way of making tensors from others. Halves and quarters of whole numbers
// are exact, so that factors can be undone.
Tensors Everything(const Part& from) {
  const WeightPart in = from("in", {7, 6});
  const WeightPart packed = from("packed", {2, 4, 3});
  const WeightPart rows = packed.Reshaped({8, 3});
  const WeightPart pairs = from("pairs", {6, 4}).Reshaped({3, 8});
  return {
      {"as it is", from("bias", {5})},
      {"first rows", in.Rows({0, 3})},
      {"other rows", WeightPart::Stacked({in.Rows({5, 7}), in.Rows({3, 5})})},
      {"turned", from("turned", {3, 5}).Transposed()},
      {"left", from("wide", {4, 5}).Columns({0, 2}).Transposed()},
      {"right", from("wide", {4, 5}).Columns({2, 5})},
      {"gates", WeightPart::Stacked({rows.Rows({0, 2}), rows.Rows({4, 6})})
                    .Reshaped({2, 2, 3})},
      {"ups", WeightPart::Stacked({rows.Rows({2, 4}), rows.Rows({6, 8})})},
      {"even", pairs.Columns({0, 4})},
      {"odd", pairs.Columns({4, 8})},
      {"flat", from("filters", {4, 1, 2}).Reshaped({4, 2})},
      {"scaled", from("scaled", {3, 2}).Scaled(0.25f)},
      {"shifted", from("shifted", {4}).Shifted(1.0f)},
      {"swapped", WeightPart::Beside({from("halves", {3, 5}).Columns({2, 5}),
                                      from("halves", {3, 5}).Columns({0, 2})})},
      {"experts",
       WeightPart::Stacked({from("expert 0", {2, 3}), from("expert 1", {2, 3})})
           .Reshaped({2, 2, 3})},
      {"fixed", WeightPart::Filled({3}, 1.5f)},
  };
}

const std::vector<TestTensor> kPublished = {
    {"bias", {5}, DType::kF32, 1},
    {"in", {7, 6}, DType::kF32, 2},
    {"packed", {2, 4, 3}, DType::kF32, 3},
    {"pairs", {6, 4}, DType::kBF16, 4},
    {"turned", {3, 5}, DType::kF32, 5},
    {"wide", {4, 5}, DType::kF32, 6},
    {"filters", {4, 1, 2}, DType::kF16, 7},
    {"scaled", {3, 2}, DType::kF32, 8},
    {"shifted", {4}, DType::kF32, 9},
    {"halves", {3, 5}, DType::kF32, 11},
    {"expert 0", {2, 3}, DType::kF32, 10},
    {"expert 1", {2, 3}, DType::kF32, 90}};

class ReversedViewTest : public ::testing::Test {
 protected:
  // The published tensors, and the view of them.
  ReversedViewTest() {
    WriteTestFile(folder_ / "published", kPublished);
    auto file = OpenWeightFile(folder_ / "published");
    if (!file.ok()) throw std::runtime_error(file.error().what());
    published_ = std::move(file).Take();
    view_ = std::make_shared<WeightView>(
        "view", Everything([&](const char* name, std::vector<int64_t>) {
          return WeightPart(published_, name);
        }));
  }
  static WeightPart Named(const char* name, std::vector<int64_t> shape) {
    return WeightPart::Named(name, std::move(shape));
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const WeightSource> published_, view_;
};

TEST_F(ReversedViewTest, GivesEachNumberAndEncodingBack) {
  const ReversedView back(Everything(Named), view_);
  ASSERT_EQ(back.tensors().size(), kPublished.size());
  for (const TestTensor& wanted : kPublished) {
    const WeightTensor* tensor = back.Find(wanted.name);
    ASSERT_NE(tensor, nullptr) << wanted.name;
    EXPECT_EQ(tensor->shape, wanted.shape);
    EXPECT_EQ(tensor->encoding, &EncodingOf(wanted.dtype)) << wanted.name;
    EXPECT_EQ(ValuesOf(back, wanted.name), wanted.Values()) << wanted.name;
    std::vector<uint8_t> stored(static_cast<size_t>(tensor->bytes()));
    back.ReadStoredRows(*tensor, {0, tensor->rows()}, stored.data());
    EXPECT_EQ(stored, wanted.Stored()) << wanted.name;
    // A part alone, after another tensor was read.
    back.Release(*tensor);
    if (tensor->rows() < 2 || tensor->shape.size() < 2) continue;
    std::vector<float> cell(1);
    back.Read(*tensor, {1, 2}, {0, 1}, cell.data());
    EXPECT_EQ(cell[0], wanted.first + static_cast<float>(tensor->columns()));
  }
  EXPECT_NE(back.Where(*back.Find("wide"), 0).find("'wide'"),
            std::string::npos);
}

TEST(ReversedViewOfLogsTest, GivesExponentialsOfLogarithms) {
  const TemporaryFolder folder;
  WriteTestFile(folder / "logs", {{"log", {2, 3}, DType::kF32, -2}});
  const auto file = OpenWeightFile(folder / "logs").Take();
  const ReversedView back(
      {{"log", WeightPart::Named("a", {6}).LogOfNegated().Reshaped({2, 3})}},
      file);
  std::vector<float> want;
  for (int i = -2; i < 4; ++i) want.push_back(static_cast<float>(-std::exp(i)));
  EXPECT_EQ(want, ValuesOf(back, "a"));
}

void ExpectFormatError(const std::function<void()>& run, const char* text) {
  try {
    run();
    FAIL() << "no error; want " << text;
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << error.what();
  }
}

TEST_F(ReversedViewTest, RefusesWhatCannotBeWritten) {
  const auto with = [&](Tensors view) {
    return std::make_shared<ReversedView>(std::move(view), view_);
  };
  // A number that is given by none; by two tensors, differently; and alike.
  const auto part = with({{"first rows", Named("in", {7, 6}).Rows({0, 3})}});
  ExpectFormatError([&] { ValuesOf(*part, "in"); }, "none for number 18");
  const auto twice = with({{"first rows", Named("x", {3, 6})},
                           {"even", Named("x", {3, 6}).Columns({0, 4})}});
  ExpectFormatError([&] { ValuesOf(*twice, "x"); }, "want one value, got");
  const auto alike = with(
      {{"first rows", Named("x", {3, 6})}, {"first rows", Named("x", {3, 6})}});
  EXPECT_EQ(ValuesOf(*alike, "x"), ValuesOf(*view_, "first rows"));
  ExpectFormatError(
      [&] {
        with({{"fixed", WeightPart::Filled({3}, 1.0f)}});
      },
      "want numbers that are all 1");
  EXPECT_THROW(with({{"first rows", Named("x", {3, 5})}}), ShapeError);
  EXPECT_THROW(with({{"no such", Named("x", {3, 5})}}), ShapeError);
  EXPECT_THROW(
      with({{"first rows", Named("x", {3, 6})}, {"flat", Named("x", {4, 2})}}),
      ShapeError);
  EXPECT_THROW(ValuesOf(WeightView("v", {{"x", Named("x", {2})}}), "x"),
               ArgumentError);
}

TEST_F(ReversedViewTest, FilesHoldASourceInEachFormat) {
  for (const StoredWeights stored :
       {StoredWeights::kAsTheyAre, StoredWeights::kF32, StoredWeights::kBF16}) {
    WeightFileOptions options;
    options.stored = stored;
    std::vector<uint64_t> seen;
    options.progress = [&](uint64_t done, uint64_t total) {
      seen.push_back(done);
      EXPECT_EQ(total, WeightFileBytes(*view_, options));
      return true;
    };
    AtomicFile file(folder_ / "written");
    WriteWeights(*view_, options, file);
    file.Commit();
    EXPECT_EQ(seen.back(), WeightFileBytes(*view_, options));
    const auto written = OpenWeightFile(folder_ / "written");
    ASSERT_TRUE(written.ok()) << written.error().what();
    ASSERT_EQ(written.value()->tensors().size(), view_->tensors().size());
    for (const WeightTensor& tensor : view_->tensors()) {
      const WeightTensor* copy = written.value()->Find(tensor.name);
      ASSERT_NE(copy, nullptr);
      EXPECT_EQ(copy->shape, tensor.shape);
      const bool kept =
          stored == StoredWeights::kAsTheyAre || tensor.shape.size() == 1;
      EXPECT_EQ(copy->encoding, kept ? tensor.encoding
                                : stored == StoredWeights::kF32
                                    ? &kF32Encoding
                                    : &kBF16Encoding);
      // All numbers of the test are exact in bfloat16.
      EXPECT_EQ(ValuesOf(*written.value(), tensor.name),
                ValuesOf(*view_, tensor.name));
    }
  }
  WeightFileOptions options;
  options.progress = [](uint64_t, uint64_t) { return false; };
  std::string bytes;
  StringSink sink(bytes);
  try {
    WriteWeights(*view_, options, sink);
    FAIL() << "not interrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
}

}  // namespace
}  // namespace tarn::testing
