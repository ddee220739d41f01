#include "core/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <typeinfo>

#include "core/dtype.h"
#include "core/tensor_view.h"

namespace tarn {
namespace {

TEST(ErrorTest, CarriesPlaceWantedAndGiven) {
  const ShapeError error("op: keys", "[2, 3]", "[3, 2]");
  EXPECT_STREQ(error.what(), "op: keys: want [2, 3], got [3, 2]");
  EXPECT_EQ(error.where(), "op: keys");
  EXPECT_EQ(error.wanted(), "[2, 3]");
  EXPECT_EQ(error.given(), "[3, 2]");
  EXPECT_EQ(error.code(), ErrorCode::kShape);
}

TEST(ErrorTest, EveryKindIsCaughtAsItselfAndAsTheBase) {
  const auto code_of = [](const auto& thrown) {
    try {
      throw thrown;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "message");
      return error.code();
    }
  };
  EXPECT_EQ(code_of(ArgumentError("message")), ErrorCode::kArgument);
  EXPECT_EQ(code_of(ShapeError("message")), ErrorCode::kShape);
  EXPECT_EQ(code_of(DTypeError("message")), ErrorCode::kDType);
  EXPECT_EQ(code_of(DeviceError("message")), ErrorCode::kDevice);
  EXPECT_EQ(code_of(FormatError("message")), ErrorCode::kFormat);
  EXPECT_EQ(code_of(IoError("message")), ErrorCode::kIo);
  EXPECT_EQ(code_of(NumericError("message")), ErrorCode::kNumeric);
  EXPECT_EQ(code_of(Error(ErrorCode::kInterrupted, "message")),
            ErrorCode::kInterrupted);
  EXPECT_THROW(throw IoError("message"), IoError);
}

Result<std::unique_ptr<int>> Make(bool good) {
  if (!good) return FormatError("file", "a number", "none");
  return std::make_unique<int>(7);
}

TEST(ResultTest, HoldsTheValueOrTheError) {
  EXPECT_TRUE(Make(true).ok());
  EXPECT_EQ(*Make(true).Take(), 7);
  const auto bad = Make(false);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kFormat);
  try {
    Make(false).Take();
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFormat);
    EXPECT_EQ(error.where(), "file");
    EXPECT_EQ(error.given(), "none");
  }
}

// The kind survives a Result, and a Result made of another one's error.
TEST(ResultTest, TakeThrowsTheTypeOfTheKind) {
  const auto take = [](const Error& error) {
    const Result<int> first = error;
    const Result<std::string> second = first.error();
    (void)Result<std::string>(second).Take();
  };
  EXPECT_THROW(take(ArgumentError("message")), ArgumentError);
  EXPECT_THROW(take(ShapeError("message")), ShapeError);
  EXPECT_THROW(take(DTypeError("message")), DTypeError);
  EXPECT_THROW(take(DeviceError("message")), DeviceError);
  EXPECT_THROW(take(FormatError("message")), FormatError);
  EXPECT_THROW(take(IoError("message")), IoError);
  EXPECT_THROW(take(NumericError("message")), NumericError);
  try {
    take(Error(ErrorCode::kInterrupted, "message"));
  } catch (const Error& error) {
    EXPECT_EQ(typeid(error), typeid(Error));
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  try {
    take(FormatError("file", "a number", "none"));
  } catch (const FormatError& error) {
    EXPECT_STREQ(error.what(), "file: want a number, got none");
    EXPECT_EQ(error.wanted(), "a number");
  }
}

TEST(TextTest, StrCatAndShapeText) {
  EXPECT_EQ(StrCat("layer ", 3, ' ', 0.5), "layer 3 0.5");
  EXPECT_EQ(ShapeText({}), "[]");
  EXPECT_EQ(ShapeText({2, 128, -1}), "[2, 128, -1]");
}

TEST(DTypeTest, NamesAndSizes) {
  EXPECT_STREQ(DTypeName(DType::kF32), "F32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF16), "F16");
  EXPECT_EQ(DTypeBytes(DType::kF32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2u);
}

TEST(TensorViewTest, RowsOfDenseAndStridedViews) {
  float data[2 * 3 * 4 * 5];
  const auto dense = TensorView::Dense(data, 2, 3, 4, 5);
  EXPECT_EQ(dense.Shape(), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(dense.Row(1, 2, 3), reinterpret_cast<char*>(&data[115]));
  // Heads before time, as some frameworks store it; one batch row repeated.
  TensorView strided = dense;
  strided.stride[0] = 0;
  strided.stride[1] = 5;
  strided.stride[2] = 15;
  EXPECT_EQ(strided.Row(1, 2, 3), reinterpret_cast<char*>(&data[55]));
  strided.dtype = DType::kBF16;
  EXPECT_EQ(strided.Row(0, 1, 0), reinterpret_cast<char*>(data) + 10);
}

}  // namespace
}  // namespace tarn
