#include "weights/weight_nodes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/text.h"

namespace tarn {
namespace {

using Node = WeightPart::Node;

// Numbers that are widened at a time where a part is turned: 64 KiB.
constexpr int64_t kTurned = 16384;

// The whole blocks around columns of a tensor, up to its row's end.
WeightRange WholeBlocks(const WeightTensor& from, WeightRange columns) {
  const int64_t block = from.encoding->numbers;
  return {columns.begin / block * block,
          std::min((columns.end + block - 1) / block * block, from.columns())};
}

// A node that no other node makes.
class LeafNode : public Node {
 public:
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    sink.Take(tensor, rows, columns, numbers);
  }
  WeightRange RowsOf(const std::string& name) const override {
    return {0, name == tensor.name ? tensor.rows() : 0};
  }
  void AddLeaves(std::vector<WeightTensor>& leaves) const override {
    leaves.push_back(tensor);
  }
};

class WholeNode final : public LeafNode {
 public:
  WholeNode(std::shared_ptr<const WeightSource> source,
            const WeightTensor& from)
      : source_(std::move(source)), from_(from) {
    tensor = from;
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    source_->Read(from_, rows, columns, out);
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    source_->ReadStored(from_, rows, columns, out);
  }
  std::string Where(int64_t row, int64_t column) const override {
    return source_->Where(from_, row * from_.columns() + column);
  }
  void Release() const override { source_->Release(from_); }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const WeightTensor& from_;
};

class WrittenNode final : public LeafNode {
 public:
  WrittenNode(std::string name, std::vector<int64_t> shape) {
    tensor = {std::move(name), std::move(shape), &kF32Encoding};
  }
  void Read(WeightRange, WeightRange, float*) const override { Refuse(); }
  void ReadStored(WeightRange, WeightRange, uint8_t*) const override {
    Refuse();
  }
  std::string Where(int64_t, int64_t) const override {
    return StrCat("tensor ", Quoted(tensor.name, 200));
  }
  void Release() const override {}
  WeightNode Sized(std::vector<int64_t> shape) const override {
    return std::make_shared<WrittenNode>(tensor.name, std::move(shape));
  }

 private:
  [[noreturn]] void Refuse() const {
    throw ArgumentError(Where(0, 0), "a tensor of a source",
                        "one that is only written");
  }
};

// A node over another one; by default it is the same tensor.
class OverNode : public Node {
 public:
  explicit OverNode(WeightNode from) : from_(std::move(from)) {
    tensor = from_->tensor;
  }
  void Release() const override { from_->Release(); }
  WeightRange RowsOf(const std::string& name) const override {
    return from_->RowsOf(name);
  }
  void AddLeaves(std::vector<WeightTensor>& leaves) const override {
    from_->AddLeaves(leaves);
  }

 protected:
  // Parts that cannot keep blocks of an encoding hold float32.
  bool widened() const { return tensor.encoding != from_->tensor.encoding; }
  void ReadAsStored(WeightRange rows, WeightRange columns, uint8_t* out) const {
    std::vector<float> row(static_cast<size_t>(columns.size()));
    const size_t bytes = row.size() * sizeof(float);
    for (int64_t r = rows.begin; r < rows.end; ++r, out += bytes) {
      Read({r, r + 1}, columns, row.data());
      std::memcpy(out, row.data(), bytes);
    }
  }
  const WeightNode from_;
};

class RangeNode final : public OverNode {
 public:
  RangeNode(WeightNode from, WeightRange rows, WeightRange columns)
      : OverNode(std::move(from)), row_(rows.begin), column_(columns.begin) {
    const WeightRange whole = WholeBlocks(tensor, columns);
    if (columns.begin != whole.begin || columns.end != whole.end) {
      tensor.encoding = &kF32Encoding;
    }
    tensor.shape[0] = rows.size();
    if (columns.size() != from_->tensor.columns()) {
      tensor.shape[1] = columns.size();
    }
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    const WeightRange wanted = InColumns(columns);
    if (!widened()) return from_->Read(InRows(rows), wanted, out);
    // Of the blocks around the columns the ends are dropped.
    const WeightRange whole = WholeBlocks(from_->tensor, wanted);
    std::vector<float> row(static_cast<size_t>(whole.size()));
    for (int64_t r = rows.begin; r < rows.end; ++r, out += wanted.size()) {
      from_->Read(InRows({r, r + 1}), whole, row.data());
      std::copy_n(row.data() + (wanted.begin - whole.begin), wanted.size(),
                  out);
    }
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    if (widened()) return ReadAsStored(rows, columns, out);
    from_->ReadStored(InRows(rows), InColumns(columns), out);
  }
  std::string Where(int64_t row, int64_t column) const override {
    return from_->Where(row_ + row, column_ + column);
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    from_->Write(InRows(rows), InColumns(columns), numbers, sink);
  }
  WeightRange RowsOf(const std::string& name) const override {
    const WeightRange all = from_->RowsOf(name);
    const int64_t begin = std::max<int64_t>(all.begin - row_, 0);
    return {begin, std::max(begin, std::min(all.end - row_, tensor.rows()))};
  }

 private:
  WeightRange InRows(WeightRange rows) const {
    return {row_ + rows.begin, row_ + rows.end};
  }
  WeightRange InColumns(WeightRange columns) const {
    return {column_ + columns.begin, column_ + columns.end};
  }
  const int64_t row_, column_;
};

// The same numbers in their order, cut into rows of another width.
class ReshapedNode final : public OverNode {
 public:
  ReshapedNode(WeightNode from, std::vector<int64_t> shape)
      : OverNode(std::move(from)) {
    tensor.shape = std::move(shape);
    // The same rows, or rows that are cut from whole blocks alone.
    const int64_t block = tensor.encoding->numbers;
    if (tensor.columns() != from_->tensor.columns() &&
        (tensor.columns() % block != 0 ||
         from_->tensor.columns() % block != 0)) {
      tensor.encoding = &kF32Encoding;
    }
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    ForRuns(rows, columns,
            [&](int64_t row, WeightRange whole, WeightRange wanted) {
              if (whole.size() == wanted.size()) {
                from_->Read({row, row + 1}, wanted, out);
              } else {
                std::vector<float> run(static_cast<size_t>(whole.size()));
                from_->Read({row, row + 1}, whole, run.data());
                std::copy_n(run.data() + (wanted.begin - whole.begin),
                            wanted.size(), out);
              }
              out += wanted.size();
            });
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    if (widened()) return ReadAsStored(rows, columns, out);
    ForRuns(rows, columns, [&](int64_t row, WeightRange, WeightRange wanted) {
      from_->ReadStored({row, row + 1}, wanted, out);
      out += tensor.encoding->Bytes(wanted.size());
    });
  }
  std::string Where(int64_t row, int64_t column) const override {
    const int64_t at = row * tensor.columns() + column;
    const int64_t width = std::max<int64_t>(1, from_->tensor.columns());
    return from_->Where(at / width, at % width);
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    ForRuns(rows, columns, [&](int64_t row, WeightRange, WeightRange wanted) {
      from_->Write({row, row + 1}, wanted, numbers, sink);
      numbers += wanted.size();
    });
  }
  WeightRange RowsOf(const std::string& name) const override {
    const WeightRange all = from_->RowsOf(name);
    const int64_t theirs = from_->tensor.columns();
    const int64_t own = std::max<int64_t>(1, tensor.columns());
    return {all.begin * theirs / own, (all.end * theirs + own - 1) / own};
  }

 private:
  // f(row of from_, whole blocks of its columns, the columns) for the pieces
  // of the rows' columns, in order.
  template <typename F>
  void ForRuns(WeightRange rows, WeightRange columns, const F& f) const {
    const int64_t width = from_->tensor.columns();
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      int64_t at = r * tensor.columns() + columns.begin;
      for (int64_t left = columns.size(); left > 0;) {
        const int64_t first = at % width;
        const int64_t count = std::min(left, width - first);
        const WeightRange wanted = {first, first + count};
        f(at / width, WholeBlocks(from_->tensor, wanted), wanted);
        at += count;
        left -= count;
      }
    }
  }
};

class TransposedNode final : public OverNode {
 public:
  explicit TransposedNode(WeightNode from) : OverNode(std::move(from)) {
    std::swap(tensor.shape[0], tensor.shape[1]);
    if (tensor.encoding->numbers > 1) tensor.encoding = &kF32Encoding;
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    const WeightRange whole = WholeBlocks(from_->tensor, rows);
    std::vector<float> piece;
    ForPieces(columns, whole.size(), [&](WeightRange part) {
      piece.resize(static_cast<size_t>(part.size() * whole.size()));
      from_->Read(part, whole, piece.data());
      for (int64_t c = 0; c < part.size(); ++c) {
        for (int64_t r = 0; r < rows.size(); ++r) {
          out[r * columns.size() + (part.begin - columns.begin) + c] =
              piece[static_cast<size_t>(c * whole.size() +
                                        (rows.begin - whole.begin) + r)];
        }
      }
    });
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    if (widened()) return ReadAsStored(rows, columns, out);
    const int64_t bytes = tensor.encoding->bytes;
    std::vector<uint8_t> piece;
    ForPieces(columns, rows.size(), [&](WeightRange part) {
      piece.resize(static_cast<size_t>(part.size() * rows.size() * bytes));
      from_->ReadStored(part, rows, piece.data());
      for (int64_t c = 0; c < part.size(); ++c) {
        for (int64_t r = 0; r < rows.size(); ++r) {
          std::memcpy(
              out + (r * columns.size() + (part.begin - columns.begin) + c) *
                        bytes,
              piece.data() + (c * rows.size() + r) * bytes,
              static_cast<size_t>(bytes));
        }
      }
    });
  }
  std::string Where(int64_t row, int64_t column) const override {
    return from_->Where(column, row);
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    std::vector<float> piece;
    ForPieces(columns, rows.size(), [&](WeightRange part) {
      piece.clear();
      for (int64_t c = part.begin - columns.begin; c < part.end - columns.begin;
           ++c) {
        for (int64_t r = 0; r < rows.size(); ++r) {
          piece.push_back(numbers[r * columns.size() + c]);
        }
      }
      from_->Write(part, rows, piece.data(), sink);
    });
  }
  WeightRange RowsOf(const std::string& name) const override {
    return {0, from_->RowsOf(name).size() > 0 ? tensor.rows() : 0};
  }

 private:
  // Columns are rows of from_, of which a few are turned at a time.
  template <typename F>
  static void ForPieces(WeightRange columns, int64_t width, const F& f) {
    const int64_t most = std::max<int64_t>(1, kTurned / width);
    for (int64_t at = columns.begin; at < columns.end; at += most) {
      f(WeightRange{at, std::min(at + most, columns.end)});
    }
  }
};

class StackedNode final : public Node {
 public:
  explicit StackedNode(std::vector<WeightNode> parts)
      : parts_(std::move(parts)) {
    tensor = parts_[0]->tensor;
    tensor.shape[0] = 0;
    for (const WeightNode& part : parts_) {
      tensor.shape[0] += part->tensor.rows();
      if (part->tensor.encoding != tensor.encoding) {
        tensor.encoding = &kF32Encoding;
      }
    }
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    ForParts(rows, [&](const Node& part, WeightRange own) {
      if (part.tensor.encoding->numbers == 1 ||
          part.tensor.encoding == tensor.encoding) {
        part.Read(own, columns, out);
      } else {
        RangeNode(WeightNode(WeightNode(), &part), {0, part.tensor.rows()},
                  columns)
            .Read(own, {0, columns.size()}, out);
      }
      out += own.size() * columns.size();
    });
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    const int64_t bytes = tensor.encoding->Bytes(columns.size());
    std::vector<float> row;
    ForParts(rows, [&](const Node& part, WeightRange own) {
      if (part.tensor.encoding == tensor.encoding) {
        part.ReadStored(own, columns, out);
      } else {  // this part is widened
        row.resize(static_cast<size_t>(own.size() * columns.size()));
        Read({rows.begin, rows.begin + own.size()}, columns, row.data());
        std::memcpy(out, row.data(), row.size() * sizeof(float));
      }
      out += own.size() * bytes;
      rows.begin += own.size();
    });
  }
  std::string Where(int64_t row, int64_t column) const override {
    std::string where;
    ForParts({row, row + 1}, [&](const Node& part, WeightRange own) {
      where = part.Where(own.begin, column);
    });
    return where.empty() ? parts_[0]->Where(0, 0) : where;
  }
  void Release() const override {
    for (const WeightNode& part : parts_) part->Release();
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    ForParts(rows, [&](const Node& part, WeightRange own) {
      part.Write(own, columns, numbers, sink);
      numbers += own.size() * columns.size();
    });
  }
  WeightRange RowsOf(const std::string& name) const override {
    WeightRange all = {tensor.rows(), 0};
    int64_t first = 0;
    for (const WeightNode& part : parts_) {
      const WeightRange own = part->RowsOf(name);
      if (own.size() > 0) {
        all = {std::min(all.begin, first + own.begin), first + own.end};
      }
      first += part->tensor.rows();
    }
    return all.size() > 0 ? all : WeightRange{};
  }
  void AddLeaves(std::vector<WeightTensor>& leaves) const override {
    for (const WeightNode& part : parts_) part->AddLeaves(leaves);
  }

 private:
  // f(part, its own rows) for the parts that the rows belong to, in order.
  template <typename F>
  void ForParts(WeightRange rows, const F& f) const {
    int64_t first = 0;
    for (const WeightNode& part : parts_) {
      const WeightRange own = {
          std::max(rows.begin, first) - first,
          std::min(rows.end, first + part->tensor.rows()) - first};
      if (own.size() > 0) f(*part, own);
      first += part->tensor.rows();
    }
  }
  const std::vector<WeightNode> parts_;
};

class BesideNode final : public Node {
 public:
  explicit BesideNode(std::vector<WeightNode> parts)
      : parts_(std::move(parts)) {
    tensor = parts_[0]->tensor;
    tensor.shape[1] = 0;
    for (const WeightNode& part : parts_) {
      const int64_t columns = part->tensor.columns();
      tensor.shape[1] += columns;
      if (part->tensor.encoding != tensor.encoding ||
          columns % tensor.encoding->numbers != 0) {
        tensor.encoding = &kF32Encoding;
      }
    }
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    std::vector<float> piece;
    ForParts(columns, [&](const WeightNode& part, WeightRange own, int64_t at) {
      piece.resize(static_cast<size_t>(rows.size() * own.size()));
      if (part->tensor.encoding == tensor.encoding) {
        part->Read(rows, own, piece.data());
      } else {  // its blocks may be cut
        RangeNode(part, {0, part->tensor.rows()}, own)
            .Read(rows, {0, own.size()}, piece.data());
      }
      for (int64_t r = 0; r < rows.size(); ++r) {
        std::copy_n(piece.data() + r * own.size(), own.size(),
                    out + r * columns.size() + at);
      }
    });
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    const int64_t bytes = tensor.encoding->Bytes(columns.size());
    std::vector<uint8_t> piece;
    ForParts(columns, [&](const WeightNode& part, WeightRange own, int64_t at) {
      const int64_t width = tensor.encoding->Bytes(own.size());
      piece.resize(static_cast<size_t>(rows.size() * width));
      if (part->tensor.encoding == tensor.encoding) {
        part->ReadStored(rows, own, piece.data());
      } else {  // this part is widened
        std::vector<float> numbers(
            static_cast<size_t>(rows.size() * own.size()));
        const int64_t first = columns.begin + at;
        Read(rows, {first, first + own.size()}, numbers.data());
        std::memcpy(piece.data(), numbers.data(), piece.size());
      }
      for (int64_t r = 0; r < rows.size(); ++r) {
        std::memcpy(out + r * bytes + tensor.encoding->Bytes(at),
                    piece.data() + r * width, static_cast<size_t>(width));
      }
    });
  }
  std::string Where(int64_t row, int64_t column) const override {
    std::string where;
    ForParts({column, column + 1},
             [&](const WeightNode& part, WeightRange own, int64_t) {
               where = part->Where(row, own.begin);
             });
    return where.empty() ? parts_[0]->Where(0, 0) : where;
  }
  void Release() const override {
    for (const WeightNode& part : parts_) part->Release();
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    std::vector<float> piece;
    ForParts(columns, [&](const WeightNode& part, WeightRange own, int64_t at) {
      piece.clear();
      for (int64_t r = 0; r < rows.size(); ++r) {
        const float* row = numbers + r * columns.size() + at;
        piece.insert(piece.end(), row, row + own.size());
      }
      part->Write(rows, own, piece.data(), sink);
    });
  }
  WeightRange RowsOf(const std::string& name) const override {
    WeightRange all = {tensor.rows(), 0};
    for (const WeightNode& part : parts_) {
      const WeightRange own = part->RowsOf(name);
      if (own.size() == 0) continue;
      all = {std::min(all.begin, own.begin), std::max(all.end, own.end)};
    }
    return all.size() > 0 ? all : WeightRange{};
  }
  void AddLeaves(std::vector<WeightTensor>& leaves) const override {
    for (const WeightNode& part : parts_) part->AddLeaves(leaves);
  }

 private:
  // f(part, its own columns, where they begin among the given ones) for the
  // parts that the columns belong to, in order.
  template <typename F>
  void ForParts(WeightRange columns, const F& f) const {
    int64_t first = 0;
    for (const WeightNode& part : parts_) {
      const int64_t width = part->tensor.columns();
      const WeightRange own = {std::max(columns.begin, first) - first,
                               std::min(columns.end, first + width) - first};
      if (own.size() > 0) f(part, own, first + own.begin - columns.begin);
      first += width;
    }
  }
  const std::vector<WeightNode> parts_;
};

// Each number by itself becomes another one, float32.
class MappedNode : public OverNode {
 public:
  explicit MappedNode(WeightNode from) : OverNode(std::move(from)) {
    tensor.encoding = &kF32Encoding;
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    const WeightRange whole = WholeBlocks(from_->tensor, columns);
    std::vector<float> row(static_cast<size_t>(whole.size()));
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      from_->Read({r, r + 1}, whole, row.data());
      std::copy_n(row.data() + (columns.begin - whole.begin), columns.size(),
                  out);
      Map(r, columns, out);
      out += columns.size();
    }
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    ReadAsStored(rows, columns, out);
  }
  std::string Where(int64_t row, int64_t column) const override {
    return from_->Where(row, column);
  }
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    std::vector<float> mapped(numbers, numbers + rows.size() * columns.size());
    for (float& number : mapped) number = Back(number);
    from_->Write(rows, columns, mapped.data(), sink);
  }

 protected:
  // Of a row, in place.
  virtual void Map(int64_t row, WeightRange columns, float* numbers) const = 0;
  virtual float Back(float number) const = 0;
};

class ScaledNode final : public MappedNode {
 public:
  ScaledNode(WeightNode from, float factor, float term)
      : MappedNode(std::move(from)), factor_(factor), term_(term) {}
  WeightNode Sized(std::vector<int64_t> shape) const override {
    return std::make_shared<ScaledNode>(from_->Sized(std::move(shape)), factor_,
                                        term_);
  }

 private:
  void Map(int64_t, WeightRange columns, float* numbers) const override {
    for (int64_t c = 0; c < columns.size(); ++c) {
      numbers[c] = factor_ * numbers[c] + term_;
    }
  }
  float Back(float number) const override { return (number - term_) / factor_; }
  const float factor_, term_;
};

class LogOfNegatedNode final : public MappedNode {
 public:
  explicit LogOfNegatedNode(WeightNode from) : MappedNode(std::move(from)) {}
  WeightNode Sized(std::vector<int64_t> shape) const override {
    return std::make_shared<LogOfNegatedNode>(from_->Sized(std::move(shape)));
  }

 private:
  // In double: the rounding to float32 is the only one.
  void Map(int64_t row, WeightRange columns, float* numbers) const override {
    for (int64_t c = 0; c < columns.size(); ++c) {
      if (!(numbers[c] <= 0)) {
        throw FormatError(
            Where(row, columns.begin + c),
            "a number up to 0, the negated exponential of another",
            StrCat(numbers[c]));
      }
      numbers[c] =
          static_cast<float>(std::log(-static_cast<double>(numbers[c])));
    }
  }
  float Back(float number) const override {
    return static_cast<float>(-std::exp(static_cast<double>(number)));
  }
};

class FilledNode final : public LeafNode {
 public:
  FilledNode(std::vector<int64_t> shape, float value) : value_(value) {
    tensor = {"", std::move(shape), &kF32Encoding};
  }
  void Read(WeightRange rows, WeightRange columns, float* out) const override {
    std::fill_n(out, rows.size() * columns.size(), value_);
  }
  void ReadStored(WeightRange rows, WeightRange columns,
                  uint8_t* out) const override {
    for (int64_t i = 0; i < rows.size() * columns.size(); ++i) {
      std::memcpy(out + i * static_cast<int64_t>(sizeof(float)), &value_,
                  sizeof(float));
    }
  }
  std::string Where(int64_t, int64_t) const override {
    return StrCat("no file: all numbers are ", value_);
  }
  void Release() const override {}
  void Write(WeightRange rows, WeightRange columns, const float* numbers,
             WeightSink& sink) const override {
    sink.TakeFilled(value_, numbers, rows.size() * columns.size());
  }

 private:
  const float value_;
};

}  // namespace

WeightNode WholeTensor(std::shared_ptr<const WeightSource> source,
                       const std::string& name) {
  const WeightTensor* tensor = source->Find(name);
  if (tensor == nullptr) {
    throw ArgumentError(StrCat(source->path(), ": tensor"),
                        "a name that the source has", Quoted(name, 200));
  }
  return std::make_shared<WholeNode>(std::move(source), *tensor);
}

void WeightPart::Node::Write(WeightRange, WeightRange, const float*,
                             WeightSink&) const {
  throw ArgumentError(StrCat("tensor ", Quoted(tensor.name, 200)),
                      "a part that can be written back", "one that cannot");
}

WeightNode WeightPart::Node::Sized(std::vector<int64_t> shape) const {
  throw ArgumentError(StrCat("tensor ", Quoted(tensor.name, 200)),
                      "a tensor that is written, or its numbers scaled",
                      StrCat("another part for shape ", ShapeText(shape)));
}

WeightNode WrittenTensor(std::string name, std::vector<int64_t> shape) {
  return std::make_shared<WrittenNode>(std::move(name), std::move(shape));
}

WeightNode RangeOf(WeightNode from, WeightRange rows, WeightRange columns) {
  return std::make_shared<RangeNode>(std::move(from), rows, columns);
}

WeightNode ReshapedTo(WeightNode from, std::vector<int64_t> shape) {
  return std::make_shared<ReshapedNode>(std::move(from), std::move(shape));
}

WeightNode TransposeOf(WeightNode from) {
  return std::make_shared<TransposedNode>(std::move(from));
}

WeightNode StackOf(std::vector<WeightNode> parts) {
  return std::make_shared<StackedNode>(std::move(parts));
}

WeightNode BesideOf(std::vector<WeightNode> parts) {
  return std::make_shared<BesideNode>(std::move(parts));
}

WeightNode LogOfNegatedOf(WeightNode from) {
  return std::make_shared<LogOfNegatedNode>(std::move(from));
}

WeightNode ScaledBy(WeightNode from, float factor) {
  return std::make_shared<ScaledNode>(std::move(from), factor, 0.0f);
}

WeightNode ShiftedBy(WeightNode from, float term) {
  return std::make_shared<ScaledNode>(std::move(from), 1.0f, term);
}

WeightNode FilledWith(std::vector<int64_t> shape, float value) {
  return std::make_shared<FilledNode>(std::move(shape), value);
}

}  // namespace tarn
