#include "runtime/quantise/rounded_source.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/groups/group_scheme.h"

namespace tarn {

void RequireRounded(const WeightSource& source, const WeightTensor& tensor,
                    int64_t row, const Encoding& encoding,
                    const uint8_t* blocks) {
  const GroupScheme& scheme = *encoding.scheme;
  for (int64_t i = 0; i < tensor.columns(); i += scheme.group) {
    if (!std::isfinite(GroupScale(blocks)) ||
        !std::isfinite(GroupMinimum(scheme, blocks))) {
      throw FormatError(
          source.Where(tensor, row * tensor.columns() + i),
          StrCat("finite weights in the range of ", encoding.name),
          "a group with others");
    }
    blocks += scheme.BlockBytes();
  }
}

RoundedSource::RoundedSource(std::shared_ptr<const WeightSource> source,
                             const std::vector<std::string>& names,
                             const TensorEncodings& encodings, MadeBlocks made,
                             Executor& executor)
    : source_(std::move(source)), made_(std::move(made)), executor_(executor) {
  std::vector<WeightTensor> tensors;
  for (const std::string& name : names) {
    const WeightTensor* from = source_->Find(name);
    if (from == nullptr) {
      throw ArgumentError("RoundedSource: names", "tensors of the source",
                          name);
    }
    from_.push_back(from);
    tensors.push_back(*from);
    const auto encoding = encodings.find(name);
    if (encoding != encodings.end()) {
      tensors.back().encoding = encoding->second;
    }
  }
  SetTensors(std::move(tensors));
}

std::string RoundedSource::Where(const WeightTensor& tensor,
                                 int64_t element) const {
  return source_->Where(*from_[IndexOf(tensor)], element);
}

void RoundedSource::Release(const WeightTensor& tensor) const {
  source_->Release(*from_[IndexOf(tensor)]);
}

void RoundedSource::Round(size_t index, WeightRange rows, uint8_t* out) const {
  const WeightTensor& tensor = tensors()[index];
  const Encoding& encoding = *tensor.encoding;
  const int64_t columns = tensor.columns(), bytes = encoding.Bytes(columns);
  const std::vector<uint8_t>* made = made_ ? made_(tensor) : nullptr;
  if (made != nullptr) {
    std::memcpy(out, made->data() + rows.begin * bytes,
                static_cast<size_t>(rows.size() * bytes));
    return;
  }
  std::vector<std::vector<float>> wide(static_cast<size_t>(executor_.width()));
  executor_.ParallelFor(rows.size(), [&](int64_t task, int worker) {
    std::vector<float>& numbers = wide[static_cast<size_t>(worker)];
    numbers.resize(static_cast<size_t>(columns));
    const int64_t row = rows.begin + task;
    source_->ReadRows(*from_[index], {row, row + 1}, numbers.data());
    uint8_t* to = out + task * bytes;
    encoding.narrow(numbers.data(), columns, to);
    if (encoding.scheme != nullptr) {
      RequireRounded(*source_, *from_[index], row, encoding, to);
    }
  });
}

void RoundedSource::ReadStoredPart(size_t index, WeightRange rows,
                                   WeightRange columns, uint8_t* out) const {
  const WeightTensor& tensor = tensors()[index];
  const WeightTensor& from = *from_[index];
  const Encoding& encoding = *tensor.encoding;
  if (&encoding == from.encoding) {
    source_->ReadStored(from, rows, columns, out);
    return;
  }
  if (columns.size() == tensor.columns()) {
    Round(index, rows, out);
    return;
  }
  std::vector<uint8_t> row(
      static_cast<size_t>(encoding.Bytes(tensor.columns())));
  const int64_t bytes = encoding.Bytes(columns.size());
  for (int64_t r = rows.begin; r < rows.end; ++r, out += bytes) {
    Round(index, {r, r + 1}, row.data());
    std::memcpy(out, row.data() + encoding.Bytes(columns.begin),
                static_cast<size_t>(bytes));
  }
}

void RoundedSource::ReadPart(size_t index, WeightRange rows,
                             WeightRange columns, float* out) const {
  const Encoding& encoding = *tensors()[index].encoding;
  const int64_t bytes = encoding.Bytes(columns.size());
  std::vector<uint8_t> blocks(static_cast<size_t>(rows.size() * bytes));
  ReadStoredPart(index, rows, columns, blocks.data());
  for (int64_t r = 0; r < rows.size(); ++r) {
    encoding.widen(blocks.data() + r * bytes, columns.size(),
                   out + r * columns.size());
  }
}

}  // namespace tarn
