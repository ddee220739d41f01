#include "weights/gguf/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/text.h"
#include "weights/continued_sink.h"

namespace tarn {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kOwnAlignment = 32;  // what readers assume without a key
constexpr int64_t kRounded = int64_t{1} << 20;  // numbers at a time

uint64_t Padded(uint64_t bytes) {
  return (bytes + kOwnAlignment - 1) / kOwnAlignment * kOwnAlignment;
}

template <typename T>
void AppendNumber(T value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// How the tensor is stored. Throws ArgumentError where GGUF cannot hold it so.
const Encoding& EncodingFor(const WeightTensor& tensor,
                            const GgufWriteOptions& options) {
  const Encoding& encoding = options.stored(tensor);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (!tensor.name.empty() && tensor.name.size() <= kMaxGgufNameBytes &&
      tensor.shape.size() <= kMaxGgufAxes && row % encoding.numbers == 0 &&
      (encoding.narrow != nullptr || tensor.encoding == &encoding)) {
    return encoding;
  }
  throw ArgumentError(
      StrCat("GGUF: tensor ", Quoted(tensor.name, 200)),
      StrCat("a name of 1 to ", kMaxGgufNameBytes, " bytes, up to ",
             kMaxGgufAxes, " axes, and rows of whole blocks of ",
             encoding.numbers, " to be ", encoding.name),
      StrCat("shape ", ShapeText(tensor.shape)));
}

// Throws FormatError for a number that the encoding cannot hold: blocks hold
// neither NaN nor infinity, and float16, which scales are too, has an end.
class HeldCheck {
 public:
  HeldCheck(const WeightSource& source, const WeightTensor& tensor,
            const Encoding& encoding, int64_t first)
      : source_(source), tensor_(tensor), encoding_(encoding), first_(first) {}

  // Before rounding and after it.
  void Check(const std::vector<float>& numbers) const {
    if (encoding_.numbers == 1) return;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!std::isfinite(numbers[i])) Refuse(i, numbers[i]);
    }
  }
  void Check(const std::vector<float>& numbers,
             const std::vector<uint8_t>& stored) const {
    if (&encoding_ == &kF32Encoding) return;
    std::vector<float> back(numbers.size());
    encoding_.widen(stored.data(), std::ssize(numbers), back.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (std::isfinite(numbers[i]) && !std::isfinite(back[i])) {
        Refuse(i, numbers[i]);
      }
    }
  }

 private:
  [[noreturn]] void Refuse(size_t i, float given) const {
    throw FormatError(source_.Where(tensor_, first_ + static_cast<int64_t>(i)),
                      StrCat("a number that ", encoding_.name, " can hold"),
                      StrCat(given));
  }

  const WeightSource& source_;
  const WeightTensor& tensor_;
  const Encoding& encoding_;
  const int64_t first_;
};

// Rows in the encoding of the file.
void ReadRounded(const WeightSource& source, const WeightTensor& tensor,
                 const Encoding& encoding, WeightRange rows,
                 std::vector<float>& wide, std::vector<uint8_t>& bytes) {
  const int64_t count = rows.size() * tensor.columns();
  bytes.resize(static_cast<size_t>(encoding.Bytes(count)));
  if (tensor.encoding == &encoding) {
    source.ReadStoredRows(tensor, rows, bytes.data());
    return;
  }
  wide.resize(static_cast<size_t>(count));
  source.ReadRows(tensor, rows, wide.data());
  const HeldCheck check(source, tensor, encoding,
                        rows.begin * tensor.columns());
  check.Check(wide);
  encoding.narrow(wide.data(), count, bytes.data());
  check.Check(wide, bytes);
}

uint64_t BytesIn(const WeightTensor& tensor, const Encoding& encoding) {
  return static_cast<uint64_t>(encoding.Bytes(tensor.elements()));
}

}  // namespace

std::string GgufHead(const WeightSource& source, const GgufKeyList& keys,
                     const GgufWriteOptions& options) {
  std::string head = "GGUF";
  AppendNumber(kVersion, head);
  AppendNumber(static_cast<uint64_t>(source.tensors().size()), head);
  AppendNumber(keys.count(), head);
  head += keys.bytes();
  uint64_t offset = 0;
  for (const WeightTensor& tensor : source.tensors()) {
    const Encoding& encoding = EncodingFor(tensor, options);
    AppendNumber(static_cast<uint64_t>(tensor.name.size()), head);
    head += tensor.name;
    AppendNumber(static_cast<uint32_t>(tensor.shape.size()), head);
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      AppendNumber(tensor.shape[i], head);
    }
    AppendNumber(GgufTypeOf(encoding), head);
    AppendNumber(offset, head);
    offset += Padded(BytesIn(tensor, encoding));
  }
  head.resize(Padded(head.size()), '\0');
  return head;
}

uint64_t GgufDataBytes(const WeightSource& source,
                       const GgufWriteOptions& options) {
  uint64_t total = 0;
  for (const WeightTensor& tensor : source.tensors()) {
    total += Padded(BytesIn(tensor, EncodingFor(tensor, options)));
  }
  return total;
}

void WriteGguf(const WeightSource& source, const GgufKeyList& keys,
               const GgufWriteOptions& options, ByteSink& to) {
  const std::string head = GgufHead(source, keys, options);
  const uint64_t total = GgufDataBytes(source, options);
  ContinuedSink file(to, options.begun, head.size(), total, options.progress);
  file.Put(head.data(), head.size());
  std::vector<float> wide;
  std::vector<uint8_t> bytes;
  for (const WeightTensor& tensor : source.tensors()) {
    const Encoding& encoding = EncodingFor(tensor, options);
    const int64_t most =
        std::max<int64_t>(1, kRounded / std::max<int64_t>(1, tensor.columns()));
    for (int64_t row = 0; row < tensor.rows(); row += most) {
      const WeightRange rows = {row, std::min(row + most, tensor.rows())};
      const auto size =
          static_cast<uint64_t>(encoding.Bytes(rows.size() * tensor.columns()));
      if (file.Skip(size)) continue;
      ReadRounded(source, tensor, encoding, rows, wide, bytes);
      file.Put(bytes.data(), bytes.size());
      file.Report();
    }
    source.Release(tensor);
    const uint64_t size = BytesIn(tensor, encoding);
    const std::string padding(Padded(size) - size, '\0');
    file.Put(padding.data(), padding.size());
  }
}

}  // namespace tarn
