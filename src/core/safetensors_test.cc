#include "core/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "core/file.h"
#include "core/half.h"
#include "core/test_util.h"

namespace tarn {
namespace {

std::string LengthField(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

// A file of the format, written by hand: the reader's oracle is not our writer.
std::string FileBytes(const std::string& header, const std::string& data) {
  return LengthField(header.size()) + header + data;
}

std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

class Safetensors : public ::testing::TestWithParam<bool> {
 protected:
  bool UseMmap() const { return GetParam(); }
  Result<SafetensorsFile> Open(const std::string& bytes) {
    WriteFileAtomically(path_, bytes);
    return SafetensorsFile::Open(path_, UseMmap());
  }
  std::vector<float> Read(const SafetensorsFile& file,
                          const std::string& name) {
    const TensorEntry* entry = file.Find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    std::vector<float> values(entry->elements() + 1, -77.0f);
    file.ReadF32(*entry, values.data());
    EXPECT_EQ(values.back(), -77.0f) << "wrote past the tensor";
    values.pop_back();
    return values;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

INSTANTIATE_TEST_SUITE_P(Access, Safetensors, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "mapped" : "copied";
                         });

TEST_P(Safetensors, ReadsAFileWrittenByHand) {
  // Names in another order than the data, an odd header, unaligned floats, a
  // scalar, empty tensors at both ends, spaces after the header.
  const std::string header =
      R"({"w":{"shape":[2,2],"dtype":"F32","data_offsets":[2,18]},)"
      R"("h":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
      R"("__metadata__":{"format":"pt","\u00e9":"caf\u00e9"},)"
      R"("first":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
      R"("last":{"dtype":"BF16","shape":[0],"data_offsets":[22,22]},)"
      R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[18,22]}}  )";
  const std::string data = std::string("\x00\x3c", 2) +
                           FloatBytes({1.5f, -2, 3e38f, -0.0f}) +
                           std::string("\x80\x3f\x00\xc0", 4);
  auto opened = Open(FileBytes(header, data));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  const SafetensorsFile file = std::move(opened).Take();
  std::vector<std::string> order;
  for (const TensorEntry& entry : file.tensors()) order.push_back(entry.name);
  EXPECT_EQ(order, (std::vector<std::string>{"first", "h", "w", "b", "last"}));
  EXPECT_EQ(Read(file, "w"), (std::vector<float>{1.5f, -2, 3e38f, -0.0f}));
  EXPECT_EQ(Read(file, "h"), std::vector<float>{1});
  EXPECT_EQ(Read(file, "b"), (std::vector<float>{1, -2}));
  EXPECT_EQ(Read(file, "first"), std::vector<float>{});
  EXPECT_EQ(file.Find("w")->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.Find("h")->shape, std::vector<int64_t>{});
  EXPECT_EQ(file.Find("b")->dtype, DType::kBF16);
  EXPECT_EQ(file.Find("absent"), nullptr);
  EXPECT_EQ(file.Find("__metadata__"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(file.data_offset(), 8 + header.size());
  EXPECT_EQ(std::memcmp(file.Data(*file.Find("w")), data.data() + 2, 16), 0);
}

TEST_P(Safetensors, WriterAndReaderAgree) {
  const float floats[6] = {
      1, -2, 0.1f, std::numeric_limits<float>::infinity(), 1e-40f, -0.0f};
  uint16_t brains[3], halves[3];
  for (int i = 0; i < 3; ++i) {
    brains[i] = F32ToBF16(floats[i]);
    halves[i] = F32ToF16(floats[i]);
  }
  const std::vector<TensorToWrite> tensors = {
      {"half \"quoted\"\n", DType::kF16, {3}, halves},
      {"f", DType::kF32, {2, 3}, floats},
      {"empty", DType::kF32, {4, 0}, nullptr},
      {"scalar", DType::kF32, {}, floats + 2},
      {"brain", DType::kBF16, {3, 1}, brains}};
  WriteSafetensors(path_, tensors, {{"format", "pt"}, {"a", "b"}});
  EXPECT_EQ(folder_.FileCount(), 1u);
  const SafetensorsFile file = SafetensorsFile::Open(path_, UseMmap()).Take();
  std::vector<std::string> names;
  for (const TensorEntry& entry : file.tensors()) {
    names.push_back(entry.name);
    EXPECT_EQ(entry.begin % DTypeBytes(entry.dtype), 0u);
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 5u);
  EXPECT_EQ(file.data_offset() % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.Data(file.tensors()[0])) % 64, 0u);
  EXPECT_EQ(file.metadata().size(), 2u);
  const std::vector<float> back = Read(file, "f");
  EXPECT_EQ(std::memcmp(back.data(), floats, sizeof(floats)), 0);
  EXPECT_EQ(Read(file, "scalar"), std::vector<float>{0.1f});
  EXPECT_EQ(Read(file, "empty"), std::vector<float>{});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Read(file, "brain")[i], BF16ToF32(brains[i]));
    EXPECT_EQ(Read(file, "half \"quoted\"\n")[i], F16ToF32(halves[i]));
  }
}

TEST_P(Safetensors, AFileWithoutTensorsIsAFile) {
  WriteSafetensors(path_, {}, {});
  const auto empty = SafetensorsFile::Open(path_, UseMmap());
  ASSERT_TRUE(empty.ok()) << empty.error().what();
  EXPECT_TRUE(empty.value().tensors().empty());
  EXPECT_TRUE(Open(FileBytes("{}", "")).ok());
}

TEST_P(Safetensors, MovesKeepEntriesValid) {
  SafetensorsFile first = Open(FileBytes(R"({"x":{"dtype":"F32","shape":[1],)"
                                         R"("data_offsets":[0,4]}})",
                                         FloatBytes({3})))
                              .Take();
  const TensorEntry* entry = first.Find("x");
  SafetensorsFile second = std::move(first);
  EXPECT_EQ(second.Find("x"), entry);
  EXPECT_EQ(Read(second, "x"), std::vector<float>{3});
}

TEST(SafetensorsWriter, BytesAreTheSameEveryTime) {
  const TemporaryFolder folder;
  const float x[2] = {1, 2};
  const std::vector<TensorToWrite> tensors = {{"b", DType::kF32, {2}, x},
                                              {"a", DType::kBF16, {2, 1}, x},
                                              {"c", DType::kF32, {1}, x}};
  WriteSafetensors(folder / "one", tensors, {{"z", "1"}, {"y", "2"}});
  WriteSafetensors(folder / "two", tensors, {{"y", "2"}, {"z", "1"}});
  const std::string bytes = ReadFile(folder / "one", 1 << 20).Take();
  EXPECT_EQ(bytes, ReadFile(folder / "two", 1 << 20).Take());
  const std::string header =
      R"({"__metadata__":{"y":"2","z":"1"},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("c":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
      R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[12,16]}})";
  EXPECT_EQ(bytes.substr(8, header.size()), header);
}

TEST(SafetensorsWriter, RefusesWhatNoReaderCouldRead) {
  const TemporaryFolder folder;
  const float x[4] = {};
  const std::vector<std::vector<TensorToWrite>> cases = {
      {{"a", DType::kF32, {1}, x}, {"a", DType::kF32, {1}, x}},
      {{"__metadata__", DType::kF32, {1}, x}},
      {{"a", DType::kF32, {1}, nullptr}},
      {{"a", DType::kF32, {-1}, x}},
      {{"a", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, x}},
      {{"a", DType::kF32, std::vector<int64_t>(9, 1), x}},
      {{"\xff", DType::kF32, {1}, x}},
      {{"a", DType::kF32, {int64_t{1} << 60}, x},
       {"b", DType::kF32, {int64_t{1} << 60}, x}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Error error =
        ErrorOf([&] { WriteSafetensors(folder / "f", cases[i], {}); });
    EXPECT_TRUE(error.code() == ErrorCode::kArgument ||
                error.code() == ErrorCode::kShape)
        << i << ": " << error.what();
  }
  EXPECT_EQ(ErrorOf([&] {
              WriteSafetensors(folder / "f", {}, {{"k", "\xff"}});
            }).code(),
            ErrorCode::kArgument);
  EXPECT_EQ(folder.FileCount(), 0u);
}

// A limit on file sizes stands in for a full disk: the same failing write.
TEST(SafetensorsWriter, NoSpaceIsAnErrorAndTheOldFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> x(10000);
  WriteSafetensors(path, {{"x", DType::kF32, {1}, x.data()}}, {});
  const std::string old = ReadFile(path, 1 << 20).Take();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = ErrorOf([&] {
    WriteSafetensors(path, {{"x", DType::kF32, {10000}, x.data()}}, {});
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_EQ(error.where(), path);
  EXPECT_EQ(ReadFile(path, 1 << 20).Take(), old);
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(SafetensorsStream, APipeIsCopiedAndMustEndWithTheData) {
  const TemporaryFolder folder;
  const std::string file = folder / "file", pipe = folder / "pipe";
  const std::vector<float> x(600000, 2.5f);  // beyond the first piece
  WriteSafetensors(file, {{"x", DType::kF32, {600000}, x.data()}}, {});
  const std::string whole = ReadFile(file, 1 << 24).Take();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // There is no writer: an error at once, no waiting.
  EXPECT_FALSE(SafetensorsFile::Open(pipe).ok());

  const auto through_pipe = [&](const std::string& bytes) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    signal(SIGPIPE, SIG_IGN);
    std::thread writer([&bytes, out = FileDescriptor(ends[1])] {
      size_t done = 0;
      while (done < bytes.size()) {
        const ssize_t put =
            write(out.get(), bytes.data() + done, bytes.size() - done);
        if (put <= 0) break;  // the reader had enough
        done += static_cast<size_t>(put);
      }
    });
    auto result = SafetensorsFile::Open(StrCat("/dev/fd/", ends[0]));
    close(ends[0]);
    writer.join();
    return result;
  };
  const auto good = through_pipe(whole);
  ASSERT_TRUE(good.ok()) << good.error().what();
  std::vector<float> back(x.size());
  good.value().ReadF32(*good.value().Find("x"), back.data());
  EXPECT_EQ(back, x);
  EXPECT_EQ(through_pipe(whole + "x").error().code(), ErrorCode::kFormat);
  EXPECT_EQ(through_pipe(whole.substr(0, whole.size() - 1)).error().code(),
            ErrorCode::kFormat);
  // A stream that announces an exabyte costs what it delivers.
  EXPECT_EQ(through_pipe(FileBytes(R"({"x":{"dtype":"F32","shape":[1000000000)"
                                   R"(000000000],"data_offsets":[0,40000000)"
                                   R"(00000000000]}})",
                                   "few"))
                .error()
                .code(),
            ErrorCode::kFormat);
}

}  // namespace
}  // namespace tarn
