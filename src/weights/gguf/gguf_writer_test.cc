// Files that are written are read again: keys, tensors, padding, and the same
// bytes when writing continues in the middle.
#include "weights/gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/test_util.h"
#include "weights/gguf/gguf_source.h"
#include "weights/gguf/gguf_test_bytes.h"
#include "weights/test_files.h"

namespace tarn::testing {
namespace {

GgufKeyList SomeKeys() {
  GgufKeyList keys;
  keys.Text("general.architecture", "llama");
  keys.U32("u", 4294967295);
  keys.I32("i", -7);
  keys.F32("f", 1e-6);
  keys.Bool("b", true);
  keys.I32s("is", std::vector<int64_t>{1, -2});
  keys.F32s("fs", std::vector<float>{0.5f});
  keys.Bools("bs", {true, false});
  keys.Texts("ts", std::vector<std::string>{"a", "", "bc"});
  return keys;
}

class GgufWriterTest : public ::testing::Test {
 protected:
  GgufWriterTest() {
    WriteTestFile(folder_ / "model.safetensors",
                  {{"matrix", {3, 32}, DType::kF32, 1},
                   {"odd", {2, 5}, DType::kBF16, 2},
                   {"vector", {7}, DType::kF32, 3},
                   {"cube", {2, 3, 32}, DType::kF32, 0},
                   {"none", {0, 4}, DType::kF32, 0}});
    source_ = OpenWeightFile(folder_ / "model.safetensors").Take();
  }
  static GgufWriteOptions Options(const Encoding& encoding) {
    GgufWriteOptions options;
    options.stored = [&encoding](const WeightTensor& t) -> const Encoding& {
      const bool fits =
          t.shape.size() > 1 && t.shape.back() % encoding.numbers == 0;
      return fits ? encoding : kF32Encoding;
    };
    return options;
  }
  std::string Written(const GgufWriteOptions& options) const {
    std::string bytes;
    StringSink sink(bytes);
    WriteGguf(*source_, SomeKeys(), options, sink);
    return bytes;
  }

  const TemporaryFolder folder_;
  std::shared_ptr<const WeightSource> source_;
};

TEST_F(GgufWriterTest, IsReadAgain) {
  for (const Encoding* encoding : {&kF32Encoding, &kF16Encoding, &kBF16Encoding,
                                   &kQ80Encoding, &kQ40Encoding}) {
    SCOPED_TRACE(encoding->name);
    const GgufWriteOptions options = Options(*encoding);
    const std::string bytes = Written(options);
    EXPECT_EQ(bytes.size(), GgufHead(*source_, SomeKeys(), options).size() +
                                GgufDataBytes(*source_, options));
    const std::string path = folder_.Write("m.gguf", bytes);
    const auto file =
        std::make_shared<const GgufFile>(GgufFile::Open(path).Take());
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->Integer("u", 0, 4294967295), 4294967295);
    EXPECT_EQ(file->Integer("i", -9, 9), -7);
    EXPECT_EQ(file->Real("f", 0, 1), 1e-6);
    EXPECT_TRUE(file->Flag("b"));
    EXPECT_EQ(file->Integers("is", -9, 9, 2), (std::vector<int64_t>{1, -2}));
    EXPECT_EQ(file->Reals("fs", 1), (std::vector<double>{0.5}));
    EXPECT_EQ(file->Flags("bs", 2), (std::vector<bool>{true, false}));
    EXPECT_EQ(file->Strings("ts", 3)[2], "bc");
    const auto read = GgufWeights(file);
    ASSERT_EQ(read->tensors().size(), source_->tensors().size());
    for (const WeightTensor& tensor : source_->tensors()) {
      SCOPED_TRACE(tensor.name);
      const WeightTensor& own = *read->Find(tensor.name);
      EXPECT_EQ(own.shape, tensor.shape);
      const Encoding& wanted = options.stored(tensor);
      EXPECT_EQ(own.encoding, &wanted);
      // What the encoding makes of the numbers.
      const std::vector<float> numbers = ValuesOf(*source_, tensor.name);
      const auto count = static_cast<int64_t>(numbers.size());
      std::vector<uint8_t> blocks(static_cast<size_t>(wanted.Bytes(count)));
      wanted.narrow(numbers.data(), count, blocks.data());
      std::vector<float> rounded(numbers.size());
      wanted.widen(blocks.data(), count, rounded.data());
      EXPECT_EQ(ValuesOf(*read, tensor.name), rounded);
    }
  }
}

TEST_F(GgufWriterTest, ContinuesAnywhere) {
  GgufWriteOptions options = Options(kQ80Encoding);
  const std::string whole = Written(options);
  uint64_t last = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    last = done;
    return true;
  };
  for (size_t begun = 0; begun <= whole.size(); begun += 13) {
    options.begun = begun;
    EXPECT_EQ(whole.substr(0, begun) + Written(options), whole) << begun;
  }
  options.begun = 0;
  options.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(ErrorOf([&] { Written(options); }).code(), ErrorCode::kInterrupted);
}

TEST_F(GgufWriterTest, RefusesWhatAFileCannotHold) {
  GgufKeyList keys = SomeKeys();
  for (const auto& add : std::vector<std::function<void()>>{
           [&] { keys.U32("u", 1); }, [&] { keys.U32("n", -1); },
           [&] { keys.U32("n", int64_t{1} << 32); },
           [&] { keys.I32("n", int64_t{1} << 31); },
           [&] { keys.Text("", "x"); },
           [&] { keys.I32s("n", std::vector<int64_t>{int64_t{1} << 40}); }}) {
    EXPECT_EQ(ErrorOf(add).code(), ErrorCode::kArgument);
  }
  GgufWriteOptions options = Options(kF32Encoding);
  options.stored = [](const WeightTensor&) -> const Encoding& {
    return kQ80Encoding;
  };
  EXPECT_EQ(ErrorOf([&] { Written(options); }).code(), ErrorCode::kArgument);
  options.stored = [](const WeightTensor&) -> const Encoding& {
    return kQ4KEncoding;  // only read
  };
  EXPECT_EQ(ErrorOf([&] { Written(options); }).code(), ErrorCode::kArgument);
  WriteTestFile(folder_ / "long", {{std::string(64, 'x'), {2, 2}}});
  source_ = OpenWeightFile(folder_ / "long").Take();
  EXPECT_EQ(ErrorOf([&] { Written(Options(kF32Encoding)); }).code(),
            ErrorCode::kArgument);
}

// Blocks hold no NaN and no infinity, and float16, which scales are too,
// nothing above 65504.
TEST_F(GgufWriterTest, RefusesNumbersThatATypeCannotHold) {
  for (const float odd : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), 1e6f}) {
    std::vector<float> numbers(64, 1.0f);
    numbers[40] = odd;
    WriteSafetensors(folder_ / "odd",
                     {{"m", DType::kF32, {2, 32}, numbers.data()}}, {});
    source_ = OpenWeightFile(folder_ / "odd").Take();
    const auto code = [&](const Encoding& encoding) {
      return ErrorOf([&] { Written(Options(encoding)); }).code();
    };
    const bool finite = std::isfinite(odd);
    EXPECT_EQ(code(kQ80Encoding), finite ? ErrorCode::kOk : ErrorCode::kFormat);
    EXPECT_EQ(code(kQ40Encoding), ErrorCode::kFormat);
    EXPECT_EQ(code(kF16Encoding), finite ? ErrorCode::kFormat : ErrorCode::kOk);
    EXPECT_EQ(code(kF32Encoding), ErrorCode::kOk);
  }
}

}  // namespace
}  // namespace tarn::testing
