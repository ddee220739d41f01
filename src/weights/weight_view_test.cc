// Views against the definition: whole tensors in memory, renamed, transposed,
// cut and stacked number by number, read in every range of rows and columns.
#include "weights/weight_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/test_util.h"
#include "weights/test_files.h"

namespace tarn::testing {
namespace {

// Blocks of four numbers: a byte for each, and one that is added to all.
void WidenBlocks(const uint8_t* from, int64_t numbers, float* to) {
  for (int64_t i = 0; i < numbers; ++i) {
    const uint8_t* block = from + i / 4 * 5;
    to[i] = static_cast<float>(block[1 + i % 4]) + block[0];
  }
}
const Encoding kBlocks = {"BLOCKS", 4, 5, WidenBlocks};

// A source in memory with one tensor in blocks and one of single numbers.
class BlockSource final : public WeightSource {
 public:
  BlockSource() {
    for (int i = 0; i < 5 * 12 / 4; ++i) {
      blocks_.push_back(static_cast<uint8_t>(i));
      for (int j = 0; j < 4; ++j) {
        blocks_.push_back(static_cast<uint8_t>(7 * i + 3 * j));
      }
    }
    SetTensors(
        {{"blocks", {5, 12}, &kBlocks}, {"plain", {5, 12}, &kF32Encoding}});
  }
  std::string path() const override { return "memory"; }
  std::string Where(const WeightTensor& tensor,
                    int64_t element) const override {
    return StrCat("memory: ", tensor.name, " ", element);
  }

 private:
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      if (index == 1) {
        for (int64_t c = columns.begin; c < columns.end; ++c) {
          *out++ = static_cast<float>(100 * r + c);
        }
        continue;
      }
      WidenBlocks(At(r, columns.begin), columns.size(), out);
      out += columns.size();
    }
  }
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    const int64_t bytes = tensors()[index].encoding->Bytes(columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r, out += bytes) {
      if (index == 0) {
        std::memcpy(out, At(r, columns.begin), static_cast<size_t>(bytes));
      } else {
        ReadPart(1, {r, r + 1}, columns, reinterpret_cast<float*>(out));
      }
    }
  }
  const uint8_t* At(int64_t row, int64_t column) const {
    return blocks_.data() + kBlocks.Bytes(row * 12 + column);
  }
  std::vector<uint8_t> blocks_;
};

// A matrix in memory: the definition that views are compared with.
struct Plain {
  std::vector<int64_t> shape;
  std::vector<float> values;
  int64_t rows() const { return shape[0]; }
  int64_t columns() const {
    return rows() == 0 ? 0 : static_cast<int64_t>(values.size()) / rows();
  }
  float at(int64_t r, int64_t c) const { return values[r * columns() + c]; }

  Plain Transposed() const {
    Plain t{{shape[1], shape[0]}, {}};
    for (int64_t c = 0; c < columns(); ++c) {
      for (int64_t r = 0; r < rows(); ++r) t.values.push_back(at(r, c));
    }
    return t;
  }
  Plain Cut(WeightRange rows, WeightRange columns) const {
    Plain t{{rows.size(), columns.size()}, {}};
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t c = columns.begin; c < columns.end; ++c) {
        t.values.push_back(at(r, c));
      }
    }
    return t;
  }
  Plain Beside(const Plain& other) const {
    return Transposed().Below(other.Transposed()).Transposed();
  }
  Plain Below(const Plain& other) const {
    Plain t = *this;
    t.shape[0] += other.shape[0];
    t.values.insert(t.values.end(), other.values.begin(), other.values.end());
    return t;
  }
};

class WeightViewTest : public ::testing::Test {
 protected:
  WeightViewTest() : blocks_(std::make_shared<BlockSource>()) {
    WriteTestFile(folder_ / "w", {{"a", {5, 12}, DType::kF32, 1},
                                  {"h", {3, 12}, DType::kBF16, 100},
                                  {"v", {6}, DType::kF16, 3},
                                  {"t", {2, 3, 4}, DType::kF32, 9}});
    file_ = OpenWeightFile(folder_ / "w").Take();
  }
  WeightPart File(const std::string& name) const { return {file_, name}; }
  Plain PlainFile(const std::string& name) const {
    return {file_->Find(name)->shape, ValuesOf(*file_, name)};
  }

  // Every range of rows and columns, as numbers and as stored.
  static void ExpectReads(const WeightPart& part, const Plain& want,
                          const Encoding& encoding) {
    const WeightView view("view", {{"x", part}});
    const WeightTensor& x = *view.Find("x");
    ASSERT_EQ(want.shape, x.shape);
    ASSERT_EQ(&encoding, x.encoding);
    const int64_t rows = want.rows(), columns = want.columns();
    const int64_t block = encoding.numbers;
    for (int64_t r0 = 0; r0 <= rows; ++r0) {
      for (int64_t r1 = r0; r1 <= rows; ++r1) {
        for (int64_t c0 = 0; c0 <= columns; c0 += block) {
          for (int64_t c1 = c0; c1 <= columns; c1 += block) {
            const Plain cut = want.Cut({r0, r1}, {c0, c1});
            const size_t count = cut.values.size();
            std::vector<float> got(count, -1), widened(count, -1);
            view.Read(x, {r0, r1}, {c0, c1}, got.data());
            ASSERT_EQ(cut.values, got)
                << r0 << " " << r1 << " " << c0 << " " << c1;
            std::vector<uint8_t> stored(static_cast<size_t>(
                encoding.Bytes(static_cast<int64_t>(count))));
            view.ReadStored(x, {r0, r1}, {c0, c1}, stored.data());
            encoding.widen(stored.data(), static_cast<int64_t>(count),
                           widened.data());
            ASSERT_EQ(cut.values, widened);
          }
        }
      }
    }
  }

  TemporaryFolder folder_;
  std::shared_ptr<const WeightSource> file_, blocks_;
};

TEST_F(WeightViewTest, RenamedTransposedAndCut) {
  const Plain a = PlainFile("a"), h = PlainFile("h");
  ExpectReads(File("a"), a, kF32Encoding);
  ExpectReads(File("h"), h, kBF16Encoding);
  ExpectReads(File("a").Transposed(), a.Transposed(), kF32Encoding);
  ExpectReads(File("h").Transposed(), h.Transposed(), kBF16Encoding);
  ExpectReads(File("a").Rows({1, 4}), a.Cut({1, 4}, {0, 12}), kF32Encoding);
  ExpectReads(File("h").Columns({3, 9}), h.Cut({0, 3}, {3, 9}), kBF16Encoding);
  ExpectReads(File("a").Rows({2, 2}), a.Cut({2, 2}, {0, 12}), kF32Encoding);
}

TEST_F(WeightViewTest, PartsOfParts) {
  const Plain a = PlainFile("a"), h = PlainFile("h");
  ExpectReads(File("a").Transposed().Rows({2, 9}).Columns({1, 4}).Transposed(),
              a.Cut({1, 4}, {2, 9}), kF32Encoding);
  ExpectReads(WeightPart::Stacked({File("h").Rows({1, 3}), File("h")}),
              h.Cut({1, 3}, {0, 12}).Below(h), kBF16Encoding);
  ExpectReads(WeightPart::Stacked({File("a"), File("h"), File("a")}),
              a.Below(h).Below(a), kF32Encoding);
  ExpectReads(
      WeightPart::Stacked({File("a").Transposed(), File("a").Transposed()})
          .Rows({5, 20}),
      a.Transposed().Below(a.Transposed()).Cut({5, 20}, {0, 5}), kF32Encoding);
}

TEST_F(WeightViewTest, Reshaped) {
  const Plain a = PlainFile("a");
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {12, 5}, {60, 1}, {1, 60}, {20, 3}, {4, 15}}) {
    ExpectReads(File("a").Reshaped(shape), {shape, a.values}, kF32Encoding);
  }
  ExpectReads(File("t").Reshaped({6, 4}), {{6, 4}, PlainFile("t").values},
              kF32Encoding);
  const WeightView view("view", {{"x", File("v").Reshaped({1, 1, 6})}});
  EXPECT_EQ(ValuesOf(*file_, "v"), ValuesOf(view, "x"));
  EXPECT_EQ((std::vector<int64_t>{1, 1, 6}), view.Find("x")->shape);
}

// What keeps whole blocks keeps the encoding; what cannot is float32.
TEST_F(WeightViewTest, Blocks) {
  const WeightPart part(blocks_, "blocks"), single(blocks_, "plain");
  const Plain plain{{5, 12}, ValuesOf(*blocks_, "blocks")};
  const Plain numbers{{5, 12}, ValuesOf(*blocks_, "plain")};
  ExpectReads(part, plain, kBlocks);
  ExpectReads(part.Rows({1, 3}), plain.Cut({1, 3}, {0, 12}), kBlocks);
  ExpectReads(part.Columns({4, 12}), plain.Cut({0, 5}, {4, 12}), kBlocks);
  ExpectReads(part.Columns({3, 10}), plain.Cut({0, 5}, {3, 10}), kF32Encoding);
  ExpectReads(part.Transposed(), plain.Transposed(), kF32Encoding);
  ExpectReads(part.Reshaped({15, 4}), {{15, 4}, plain.values}, kBlocks);
  ExpectReads(part.Reshaped({10, 6}), {{10, 6}, plain.values}, kF32Encoding);
  ExpectReads(WeightPart::Stacked({part, part}), plain.Below(plain), kBlocks);
  ExpectReads(WeightPart::Stacked({part, single}), plain.Below(numbers),
              kF32Encoding);
  EXPECT_THROW(blocks_->Read(*blocks_->Find("blocks"), {0, 1}, {1, 4}, nullptr),
               ShapeError);
}

TEST_F(WeightViewTest, Beside) {
  const WeightPart part(blocks_, "blocks"), single(blocks_, "plain");
  const Plain plain{{5, 12}, ValuesOf(*blocks_, "blocks")};
  const Plain numbers{{5, 12}, ValuesOf(*blocks_, "plain")};
  const Plain a = PlainFile("a");
  const auto cut = [&](int64_t begin, int64_t end) {
    return plain.Cut({0, 5}, {begin, end});
  };
  ExpectReads(WeightPart::Beside({part}), plain, kBlocks);
  ExpectReads(WeightPart::Beside({part.Columns({8, 12}), part.Columns({0, 4}),
                                  part.Columns({4, 4}), part.Columns({4, 8})}),
              cut(8, 12).Beside(cut(0, 4)).Beside(cut(4, 8)), kBlocks);
  ExpectReads(WeightPart::Beside({part.Columns({3, 5}), part.Columns({0, 4})}),
              cut(3, 5).Beside(cut(0, 4)), kF32Encoding);
  ExpectReads(WeightPart::Beside({single.Columns({0, 3}), part}),
              numbers.Cut({0, 5}, {0, 3}).Beside(plain), kF32Encoding);
  ExpectReads(WeightPart::Beside({File("a"), part}).Rows({1, 4}),
              a.Beside(plain).Cut({1, 4}, {0, 24}), kF32Encoding);
  const WeightView view(
      "view", {{"x", WeightPart::Beside({single.Columns({2, 4}), single})}});
  EXPECT_EQ("memory: plain 39, as 'x'",
            view.Where(*view.Find("x"), 3 * 14 + 5));
}

TEST_F(WeightViewTest, LogOfNegated) {
  WriteTestFile(folder_ / "l", {{"x", {2, 3}, DType::kF32, 0}});
  const auto file = OpenWeightFile(folder_ / "l").Take();
  const WeightPart x(file, "x");
  Plain want{{2, 3}, {}};
  for (int i = 0; i < 6; ++i) {  // that of 0 is -infinity
    want.values.push_back(static_cast<float>(std::log(static_cast<double>(i))));
  }
  ExpectReads(x.Scaled(-1.0f).LogOfNegated(), want, kF32Encoding);
  const WeightView view("view", {{"x", x.LogOfNegated()}});
  try {
    ValuesOf(view, "x");
    FAIL() << "no error";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("want a number up to 0"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(WeightViewTest, ScaledAndShifted) {
  const WeightPart part(blocks_, "blocks");
  const Plain plain{{5, 12}, ValuesOf(*blocks_, "blocks")};
  Plain scaled = plain, shifted = plain;
  for (float& value : scaled.values) value *= -0.75f;
  for (float& value : shifted.values) value += 1.0f;
  ExpectReads(part.Scaled(-0.75f), scaled, kF32Encoding);
  ExpectReads(part.Shifted(1.0f), shifted, kF32Encoding);
  ExpectReads(File("h").Shifted(1.0f).Shifted(-1.0f), PlainFile("h"),
              kF32Encoding);
}

TEST_F(WeightViewTest, SaysWhereTheSourceStoresANumber) {
  const WeightPart part(blocks_, "plain");
  const WeightView view(
      "view", {{"turned", part.Rows({1, 5}).Transposed()},
               {"stacked", WeightPart::Stacked({part, part.Rows({2, 3})})}});
  // Row 5, column 2 of the transpose is row 3, column 5 of the source.
  EXPECT_EQ("memory: plain 41, as 'turned'",
            view.Where(*view.Find("turned"), 5 * 4 + 2));
  EXPECT_EQ("memory: plain 31, as 'stacked'",
            view.Where(*view.Find("stacked"), 5 * 12 + 7));
}

// A published matrix that holds what a model keeps apart, and the other way
// round, through a view of a view.
TEST_F(WeightViewTest, SplitAndStackedAgain) {
  std::shared_ptr<const WeightSource> split = std::make_shared<WeightView>(
      "split",
      std::vector<WeightView::Tensor>{{"top", File("a").Rows({0, 2})},
                                      {"rest", File("a").Rows({2, 5})}});
  const WeightView whole(
      "whole", {{"again", WeightPart::Stacked({WeightPart(split, "top"),
                                               WeightPart(split, "rest")})}});
  EXPECT_EQ(ValuesOf(*file_, "a"), ValuesOf(whole, "again"));
}

TEST_F(WeightViewTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(File("absent"), ArgumentError);
  EXPECT_THROW(File("v").Transposed(), ShapeError);
  EXPECT_THROW(File("t").Columns({0, 1}), ShapeError);
  EXPECT_THROW(File("a").Rows({0, 6}), ShapeError);
  EXPECT_THROW(File("a").Columns({-1, 2}), ShapeError);
  EXPECT_THROW(File("a").Reshaped({7, 9}), ShapeError);
  EXPECT_THROW(File("a").Reshaped({-5, -12}), ShapeError);
  EXPECT_THROW(File("a").Reshaped({std::numeric_limits<int64_t>::max(), 60}),
               ShapeError);
  EXPECT_THROW(WeightPart::Stacked({}), ShapeError);
  EXPECT_THROW(WeightPart::Stacked({File("a"), File("v")}), ShapeError);
  EXPECT_THROW(WeightPart::Beside({}), ShapeError);
  EXPECT_THROW(WeightPart::Beside({File("a"), File("h")}), ShapeError);
  EXPECT_THROW(WeightPart::Beside({File("v"), File("v")}), ShapeError);
  EXPECT_THROW(WeightView("v", {{"x", File("a")}, {"x", File("v")}}),
               ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
