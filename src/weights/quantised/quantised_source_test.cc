// Tensors in groups against files that are written number by number here, with
// values by the definition of core/groups/group_scheme.h; and files that are
// not what they must be.
#include "weights/quantised/quantised_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/rng.h"
#include "core/test_util.h"
#include "weights/quantised/group_encodings.h"
#include "weights/quantised/stored_groups.h"
#include "weights/test_files.h"
#include "weights/weight_file.h"
#include "weights/weight_view.h"

namespace tarn::testing {
namespace {

// A tensor in groups, its numbers computed one by one.
struct Groups {
  std::string name;
  GroupScheme scheme;
  std::vector<int64_t> shape;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales, minima;
  std::vector<float> values;  // [rows of the last axis, its size]

  Groups(std::string tensor, const GroupScheme& s, std::vector<int64_t> sizes,
         uint64_t seed)
      : name(std::move(tensor)), scheme(s), shape(std::move(sizes)) {
    Rng rng(seed);
    const int64_t columns = shape.back();
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    const int64_t blocks = (columns + s.group - 1) / s.group;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < blocks; ++b) {
        scales.push_back(F32ToF16(static_cast<float>(rng.Normal()) / 16));
        minima.push_back(F32ToF16(static_cast<float>(rng.Normal())));
        std::vector<int> q;
        for (int64_t i = 0; i < s.group; ++i) {
          q.push_back(static_cast<int>(rng.Below(s.bits == 8 ? 256 : 16)) -
                      (s.bits == 8 ? 128 : 0));
        }
        for (int64_t i = 0; i < s.group * s.bits / 8; ++i) {
          codes.push_back(static_cast<uint8_t>(
              s.bits == 8 ? q[static_cast<size_t>(i)]
                          : q[static_cast<size_t>(i)] |
                                q[static_cast<size_t>(i + s.group / 2)] << 4));
        }
        const float d = F16ToF32(scales.back()), m = F16ToF32(minima.back());
        for (int64_t i = 0; i < s.group && b * s.group + i < columns; ++i) {
          const auto code = static_cast<float>(q[static_cast<size_t>(i)]);
          values.push_back(s.minimum     ? std::fma(d, code, m)
                           : s.bits == 4 ? d * (code - 8)
                                         : d * code);
        }
      }
    }
    if (!s.minimum) minima.clear();
  }
  int64_t blocks() const {
    return (shape.back() + scheme.group - 1) / scheme.group;
  }
};

// What a test changes in a file before it is written.
struct File {
  std::shared_ptr<const std::vector<Groups>> groups;  // what tensors point to
  std::vector<TensorToWrite> tensors;
  std::string note;
};

File FileOf(std::vector<Groups> given) {
  File file;
  file.groups = std::make_shared<std::vector<Groups>>(std::move(given));
  const std::vector<Groups>& all = *file.groups;
  std::vector<WeightTensor> list;
  for (const Groups& groups : all) {
    std::vector<int64_t> codes = groups.shape, scales = groups.shape;
    scales.back() = groups.blocks();
    codes.back() =
        groups.blocks() * groups.scheme.group * groups.scheme.bits / 8;
    file.tensors.push_back({groups.name + ".codes", DType::kF32, codes,
                            groups.codes.data(), true});
    file.tensors.push_back(
        {groups.name + ".scales", DType::kF16, scales, groups.scales.data()});
    if (groups.scheme.minimum) {
      file.tensors.push_back(
          {groups.name + ".minima", DType::kF16, scales, groups.minima.data()});
    }
    list.push_back({groups.name, groups.shape, &GroupEncoding(groups.scheme)});
  }
  file.note = QuantisedText(list);
  return file;
}

void Write(const std::string& path, const File& file) {
  WriteSafetensors(path, file.tensors,
                   file.note.empty() ? std::map<std::string, std::string>{}
                                     : std::map<std::string, std::string>{
                                           {kQuantisedKey, file.note}});
}

std::vector<GroupScheme> Schemes() {
  std::vector<GroupScheme> all;
  for (const Encoding& encoding : GroupEncodings()) {
    all.push_back(*encoding.scheme);
  }
  return all;
}

TEST(GroupEncodings, HaveTheNamesAndSizesOfTheirSchemes) {
  EXPECT_EQ(GroupEncodings().size(), 9u);
  const auto expect = [](const char* name, int bits, int64_t group,
                         bool minimum, int64_t bytes) {
    const Encoding* encoding = FindGroupEncoding(name);
    ASSERT_NE(encoding, nullptr) << name;
    EXPECT_EQ((GroupScheme{bits, group, minimum}), *encoding->scheme);
    EXPECT_EQ(encoding->numbers, group);
    EXPECT_EQ(encoding->bytes, bytes);
    EXPECT_EQ(encoding, &GroupEncoding({bits, group, minimum}));
  };
  expect("I8_32", 8, 32, false, 34);
  expect("I8_128", 8, 128, false, 130);
  expect("I4_32", 4, 32, false, 18);
  expect("I4_64", 4, 64, false, 34);
  expect("I4M_32", 4, 32, true, 20);
  expect("I4M_128", 4, 128, true, 68);
  EXPECT_EQ(FindGroupEncoding("I3_32"), nullptr);
  EXPECT_THROW(GroupEncoding({8, 32, true}), ArgumentError);
  EXPECT_THROW(GroupEncoding({4, 48, false}), ArgumentError);
}

TEST(FittingScheme, TakesTheFewestBytes) {
  const auto group = [](int64_t most, std::vector<int64_t> shape) {
    const auto scheme = FittingScheme({4, most, false}, shape);
    return scheme ? scheme->group : 0;
  };
  EXPECT_EQ(group(32, {5, 1}), 32);
  EXPECT_EQ(group(64, {5, 64}), 64);
  EXPECT_EQ(group(64, {5, 128}), 64);
  EXPECT_EQ(group(64, {5, 96}), 32);    // 54 bytes a row, 68 with 64
  EXPECT_EQ(group(128, {5, 192}), 64);  // 102, 132 with 128
  EXPECT_EQ(group(128, {5, 1000}), 128);
  EXPECT_EQ(group(64, {2, 5, 96}), 32);
  EXPECT_EQ(group(64, {2, 5, 640}), 64);
  EXPECT_EQ(group(128, {2, 5, 100}), 0);
  EXPECT_EQ(group(64, {96}), 0);
}

TEST(QuantisedSource, GivesTheNumbersOfEveryScheme) {
  const TemporaryFolder folder;
  for (const GroupScheme& scheme : Schemes()) {
    for (const int64_t columns : {1, 31, 32, 33, 64, 129, 300}) {
      const Groups groups("w", scheme, {5, columns}, 7);
      File file = FileOf({groups});
      const std::vector<float> plain = {1, 2, 3};
      file.tensors.push_back({"plain", DType::kF32, {3}, plain.data()});
      Write(folder / "w", file);
      const auto source = OpenWeightFile(folder / "w").Take();
      ASSERT_EQ(source->tensors().size(), 2u);
      const WeightTensor& w = *source->Find("w");
      EXPECT_EQ(w.encoding, &GroupEncoding(scheme));
      EXPECT_EQ(w.shape, groups.shape);
      EXPECT_EQ(ValuesOf(*source, "w"), groups.values);
      EXPECT_EQ(ValuesOf(*source, "plain"), plain);
      // Parts of rows, in whole groups or to a row's end.
      for (int64_t begin = 0; begin < columns; begin += scheme.group) {
        for (int64_t end = begin + scheme.group;; end += scheme.group) {
          const WeightRange range = {begin, std::min(end, columns)};
          std::vector<float> got(static_cast<size_t>(2 * range.size()));
          source->Read(w, {2, 4}, range, got.data());
          for (int64_t i = 0; i < 2 * range.size(); ++i) {
            ASSERT_EQ(got[static_cast<size_t>(i)],
                      groups.values[static_cast<size_t>(
                          (2 + i / range.size()) * columns + range.begin +
                          i % range.size())]);
          }
          if (end >= columns) break;
        }
      }
      // Blocks are those of the scheme: head, then codes.
      std::vector<uint8_t> row(static_cast<size_t>(scheme.RowBytes(columns)));
      source->ReadStoredRows(w, {4, 5}, row.data());
      for (int64_t b = 0; b < groups.blocks(); ++b) {
        const uint8_t* block = row.data() + b * scheme.BlockBytes();
        const size_t at = static_cast<size_t>(4 * groups.blocks() + b);
        EXPECT_EQ(0, std::memcmp(block, &groups.scales[at], 2));
        if (scheme.minimum) {
          EXPECT_EQ(0, std::memcmp(block + 2, &groups.minima[at], 2));
        }
        EXPECT_EQ(0, std::memcmp(block + scheme.HeadBytes(),
                                 groups.codes.data() + at * CodeBytes(scheme),
                                 static_cast<size_t>(CodeBytes(scheme))));
      }
      // Bytes from anywhere.
      std::vector<uint8_t> bytes(static_cast<size_t>(w.bytes()));
      source->ReadStoredRows(w, {0, 5}, bytes.data());
      for (int64_t begin = 0; begin < w.bytes(); begin += 13) {
        const int64_t count = std::min<int64_t>(29, w.bytes() - begin);
        std::vector<uint8_t> some(static_cast<size_t>(count));
        source->ReadBytes(w, begin, count, some.data());
        EXPECT_EQ(0, std::memcmp(some.data(), bytes.data() + begin,
                                 static_cast<size_t>(count)));
      }
    }
  }
}

TEST(QuantisedSource, KeepsBlocksInViewsThatDoNotCutThem) {
  const TemporaryFolder folder;
  const GroupScheme scheme = {4, 32, true};
  const Groups odd("odd", scheme, {6, 40}, 1), even("even", scheme, {6, 64}, 2);
  const Groups stack("stack", scheme, {3, 2, 64}, 3);
  Write(folder / "w", FileOf({odd, even, stack}));
  const auto source = OpenWeightFile(folder / "w").Take();
  const Encoding* encoding = &GroupEncoding(scheme);
  const auto expect = [&](const WeightPart& part, bool kept,
                          const std::vector<float>& want) {
    EXPECT_EQ(&part.encoding() == encoding, kept);
    const WeightView view("view", {{"x", part}});
    EXPECT_EQ(ValuesOf(view, "x"), want);
  };
  const auto rows = [](const Groups& groups, int64_t begin, int64_t end) {
    const int64_t width = groups.shape.back();
    return std::vector<float>(groups.values.begin() + begin * width,
                              groups.values.begin() + end * width);
  };
  const WeightPart a(source, "odd"), b(source, "even"), c(source, "stack");
  expect(a.Rows({2, 5}), true, rows(odd, 2, 5));
  expect(WeightPart::Stacked({a.Rows({3, 4}), a}), true, [&] {
    std::vector<float> all = rows(odd, 3, 4);
    all.insert(all.end(), odd.values.begin(), odd.values.end());
    return all;
  }());
  expect(a.Reshaped({2, 3, 40}), false, odd.values);
  expect(a.Reshaped({6, 1, 40}), true, odd.values);
  expect(a.Reshaped({3, 80}), false, odd.values);
  expect(b.Reshaped({2, 3, 64}), true, even.values);
  expect(b.Reshaped({12, 32}), true, even.values);
  expect(c.Reshaped({6, 64}), true, stack.values);
  const auto columns = [](const Groups& groups, int64_t begin, int64_t end) {
    std::vector<float> some;
    const int64_t width = groups.shape.back();
    for (size_t i = 0; i < groups.values.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) % width;
      if (at >= begin && at < end) some.push_back(groups.values[i]);
    }
    return some;
  };
  expect(a.Columns({32, 40}), true, columns(odd, 32, 40));
  expect(a.Columns({0, 32}), true, columns(odd, 0, 32));
  expect(a.Columns({0, 36}), false, columns(odd, 0, 36));
  expect(a.Columns({1, 40}), false, columns(odd, 1, 40));
  expect(b.Columns({32, 64}), true, columns(even, 32, 64));
}

// What is written is what was read, and a writer that continues from any byte
// writes the rest of the same file.
TEST(QuantisedSource, IsWrittenAsItIs) {
  const TemporaryFolder folder;
  std::vector<Groups> all;
  for (const GroupScheme& scheme : Schemes()) {
    all.emplace_back(StrCat("w", all.size()), scheme,
                     std::vector<int64_t>{7, 150}, all.size());
  }
  all.emplace_back("experts", GroupScheme{4, 64, false},
                   std::vector<int64_t>{2, 3, 128}, 20);
  File file = FileOf(all);
  const std::vector<float> plain = {1, 2, 3, 4};
  file.tensors.push_back({"plain", DType::kF32, {2, 2}, plain.data()});
  Write(folder / "w", file);
  const auto source = OpenWeightFile(folder / "w").Take();
  struct Bytes final : ByteSink {
    std::string bytes;
    void Write(const void* data, size_t count) override {
      bytes.append(static_cast<const char*>(data), count);
    }
  };
  WeightFileOptions options;
  Bytes whole;
  uint64_t reported = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    EXPECT_GE(done, reported);
    reported = done;
    return true;
  };
  WriteWeights(*source, options, whole);
  EXPECT_EQ(reported, WeightFileBytes(*source, options));
  EXPECT_EQ(whole.bytes.size(),
            WeightFileHead(*source, options).size() + reported);
  for (uint64_t begun = 0; begun <= whole.bytes.size(); begun += 97) {
    options.begun = begun;
    options.progress = nullptr;
    Bytes rest;
    WriteWeights(*source, options, rest);
    ASSERT_EQ(rest.bytes, whole.bytes.substr(begun)) << begun;
  }
  WriteFileAtomically(folder / "again", whole.bytes);
  const auto again = OpenWeightFile(folder / "again").Take();
  ASSERT_EQ(again->tensors().size(), source->tensors().size());
  for (const Groups& groups : all) {
    EXPECT_EQ(again->Find(groups.name)->encoding,
              source->Find(groups.name)->encoding);
    EXPECT_EQ(ValuesOf(*again, groups.name), groups.values);
  }
  EXPECT_EQ(ValuesOf(*again, "plain"), plain);
  // As numbers.
  options = {};
  options.stored = StoredWeights::kF32;
  Bytes wide;
  WriteWeights(*source, options, wide);
  WriteFileAtomically(folder / "wide", wide.bytes);
  const auto numbers = OpenWeightFile(folder / "wide").Take();
  for (const Groups& groups : all) {
    EXPECT_EQ(numbers->Find(groups.name)->encoding, &kF32Encoding);
    EXPECT_EQ(ValuesOf(*numbers, groups.name), groups.values);
  }
}

class HostileGroups : public ::testing::Test {
 protected:
  // The error for a file that `change` has changed, one line that holds `text`.
  void Refused(const std::function<void(File&)>& change,
               const std::string& text) {
    File file = FileOf({groups_});
    change(file);
    Write(folder_ / "w", file);
    const auto source = OpenWeightFile(folder_ / "w");
    ASSERT_FALSE(source.ok()) << text;
    const std::string what = source.error().what();
    EXPECT_EQ(source.error().code(), ErrorCode::kFormat);
    EXPECT_NE(what.find(text), what.npos) << what;
    EXPECT_EQ(what.find('\n'), what.npos);
  }
  void RefusedNote(const std::string& note, const std::string& text) {
    Refused([&](File& file) { file.note = note; }, text);
  }

  const TemporaryFolder folder_;
  const Groups groups_{"w", {4, 32, true}, {3, 40}, 5};
};

TEST_F(HostileGroups, PartsThatAreNotThereOrDifferent) {
  for (size_t part = 0; part < 3; ++part) {
    Refused(
        [&](File& file) { file.tensors.erase(file.tensors.begin() + part); },
        "no such tensor");
    Refused([&](File& file) { file.tensors[part].name = "other"; },
            "no such tensor");
  }
  Refused([](File& file) { file.tensors[0].shape = {3, 16, 2}; }, "[3, 16, 2]");
  Refused([](File& file) { file.tensors[1].shape = {6}; }, "F16 [3, 2]");
  Refused([](File& file) { file.tensors[2].shape = {2, 3}; }, "F16 [3, 2]");
  Refused([](File& file) { file.tensors[1].dtype = DType::kBF16; },
          "BF16 [3, 2]");
  Refused(
      [&](File& file) {
        file.tensors.push_back(
            {"w", DType::kF16, {3, 2}, groups_.scales.data()});
      },
      "stored once");
  // Codes that belong to nothing.
  Refused([](File& file) { file.note.clear(); }, "got U8");
  Refused(
      [&](File& file) {
        file.tensors.push_back(
            {"x", DType::kF32, {3, 2}, groups_.codes.data(), true});
      },
      "got U8");
}

TEST_F(HostileGroups, NotesThatAreNotOfTheForm) {
  RefusedNote("[]", "quantised");
  RefusedNote("{", "strict JSON");
  RefusedNote("{\"w\": 3}", "scheme and shape");
  RefusedNote(R"({"w": {"scheme": "I4M_32"}})", "scheme and shape");
  RefusedNote(R"({"w": {"scheme": "I4M_32", "shape": [3, 40], "x": 1}})",
              "scheme and shape");
  RefusedNote(R"({"w": {"scheme": "I5_32", "shape": [3, 40]}})",
              "one of I8_32, I8_64");
  RefusedNote(R"({"w": {"scheme": 8, "shape": [3, 40]}})", "one of I8_32");
  for (const char* shape :
       {"3", "[]", "[120]", "[3, 0]", "[3, -40]", "[3, 40.5]", "[3, \"40\"]",
        "[1, 1, 1, 1, 1, 1, 1, 3, 40]", "[4611686018427387904, 40]",
        "[1e300, 2]"}) {
    RefusedNote(StrCat(R"({"w": {"scheme": "I4M_32", "shape": )", shape, "}}"),
                "shape");
  }
  RefusedNote(R"({"w": {"scheme": "I4M_32", "shape": [3, 1, 40]}})",
              "whole groups of 32");
  RefusedNote(R"({"w": {"scheme": "I4M_32", "shape": [3, 65]}})", "U8 [3, 48]");
  RefusedNote(R"({"w": {"scheme": "I8_32", "shape": [3, 40]}})", "U8 [3, 64]");
  RefusedNote(
      R"({"w": {"scheme": "I4M_32", "shape": [3, 40]},
          "v": {"scheme": "I4M_32", "shape": [3, 40]}})",
      "no such tensor");
  RefusedNote(
      R"({"w": {"scheme": "I4M_32", "shape": [3, 40]},
          "w": {"scheme": "I4M_32", "shape": [3, 40]}})",
      "twice");
}

TEST_F(HostileGroups, ScalesThatAreNoNumbers) {
  for (const uint16_t bits : {0x7C00, 0xFC00, 0x7E00, 0xFFFF}) {
    for (const bool minimum : {false, true}) {
      Groups groups = groups_;
      (minimum ? groups.minima : groups.scales)[3] = bits;
      Write(folder_ / "w", FileOf({groups}));
      const auto source = OpenWeightFile(folder_ / "w").Take();
      const WeightTensor& w = *source->Find("w");
      std::vector<float> row(40);
      source->ReadRows(w, {0, 1}, row.data());  // the others can be read
      source->Read(w, {1, 2}, {0, 32}, row.data());
      try {
        source->ReadRows(w, {1, 2}, row.data());
        ADD_FAILURE() << bits;
      } catch (const FormatError& error) {
        const std::string what = error.what();
        EXPECT_NE(what.find(minimum ? "w.minima" : "w.scales"), what.npos);
        EXPECT_NE(what.find("NaN or infinity"), what.npos);
        EXPECT_EQ(what.find('\n'), what.npos);
      }
    }
  }
}

// Each shard has a note of its own tensors.
TEST(QuantisedShards, AreJoined) {
  const TemporaryFolder folder;
  const Groups a("a", {8, 64, false}, {3, 70}, 1),
      b("b", {4, 32, false}, {2, 5}, 2);
  Write(folder / "one.safetensors", FileOf({a}));
  Write(folder / "two.safetensors", FileOf({b}));
  WriteFileAtomically(folder / "model.safetensors.index.json",
                      R"({"weight_map": {"a.codes": "one.safetensors",
          "a.scales": "one.safetensors", "b.codes": "two.safetensors",
          "b.scales": "two.safetensors"}})");
  const auto source = OpenWeightSource(folder.path()).Take();
  EXPECT_EQ(ValuesOf(*source, "a"), a.values);
  EXPECT_EQ(ValuesOf(*source, "b"), b.values);
  // The same tensor in two of them.
  File twice = FileOf({b});
  twice.note = FileOf({a}).note;
  Write(folder / "two.safetensors", twice);
  const auto refused = OpenWeightSource(folder.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.error().what()).find("a second one"),
            std::string::npos);
}

// Readers of numbers alone refuse bytes as before.
TEST(QuantisedSource, BytesAreForWeightsOnly) {
  const TemporaryFolder folder;
  Write(folder / "w", FileOf({Groups("w", {8, 32, false}, {1, 32}, 1)}));
  const auto file = SafetensorsFile::Open(folder / "w");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(std::string(file.error().what()).find("dtype F32, BF16 or F16"),
            std::string::npos);
}

}  // namespace
}  // namespace tarn::testing
