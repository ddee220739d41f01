#include "runtime/weights/packer.h"

#include <algorithm>

#include "core/error.h"

namespace tarn {
namespace {

// Whether rows of a matrix can be set from what the file stores of a tensor. A
// row of more axes than two holds several of the matrix.
bool TakesStored(const WeightTensor& tensor, int64_t inputs,
                 const WeightFormat& format) {
  if (format.number) return tensor.encoding == &EncodingOf(*format.number);
  const GroupScheme* scheme = tensor.encoding->scheme;
  return scheme != nullptr && format.scheme != nullptr &&
         *scheme == *format.scheme &&
         (tensor.columns() == inputs || inputs % scheme->group == 0);
}

}  // namespace

Packer::Packer(const WeightSource& source, const WeightPlan& plan,
               Executor& executor)
    : source_(source),
      plan_(plan),
      executor_(executor),
      blocks_(static_cast<size_t>(executor.width())) {}

bool Packer::Has(const std::string& name) const {
  return source_.Find(name) != nullptr;
}

const WeightFormat& Packer::FormatOf(const WeightTensor& tensor, int64_t) {
  return plan_.FormatOf(tensor);
}

const WeightTensor& Packer::Find(const std::string& name) const {
  const WeightTensor* tensor = source_.Find(name);
  if (tensor == nullptr) {  // CheckWeights was not called
    throw FormatError(source_.path(), name, "no such tensor");
  }
  return *tensor;
}

void Packer::Note(const WeightTensor& tensor, const WeightFormat& format) {
  parameters_ += tensor.elements();
  held_.push_back({tensor.name, &format, &EquivalentFormat(tensor, format),
                   tensor.elements()});
}

std::vector<float> Packer::Read(const WeightTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  source_.ReadRows(tensor, {0, tensor.rows()}, values.data());
  parameters_ += tensor.elements();
  return values;
}

std::vector<float> Packer::Vector(const std::string& name) {
  std::vector<float> values = Read(Find(name));
  vector_bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
  return values;
}

void Packer::SetRows(const WeightTensor& tensor, int64_t from, int64_t first,
                     int64_t rows, int worker, WeightMatrix& matrix) {
  std::vector<float>& block = blocks_[static_cast<size_t>(worker)];
  const size_t floats = static_cast<size_t>(rows * matrix.inputs());
  // A block in groups takes fewer bytes, but for rows shorter than a group.
  const size_t wanted = std::max<size_t>(
      floats,
      static_cast<size_t>(rows * tensor.encoding->Bytes(matrix.inputs())) /
              sizeof(float) +
          1);
  if (block.size() < wanted) block.resize(wanted);
  // A tensor [count, outputs, inputs] is read by whole outputs.
  const int64_t each = tensor.columns() / matrix.inputs();
  const WeightRange range = {from / each, (from + rows) / each};
  const WeightFormat& format = matrix.FormatAt(matrix.PanelOf(first));
  if (TakesStored(tensor, matrix.inputs(), format)) {
    auto* blocks = reinterpret_cast<uint8_t*>(block.data());
    source_.ReadStoredRows(tensor, range, blocks);
    matrix.SetStoredRows(first, rows, blocks);
  } else {
    source_.ReadRows(tensor, range, block.data());
    matrix.SetRows(first, rows, block.data(), nullptr);
  }
}

WeightMatrix Packer::Matrix(const std::vector<NamedRows>& parts,
                            int64_t inputs) {
  std::vector<WeightRows> segments;
  for (const NamedRows& part : parts) {
    if (part.rows == 0) continue;
    const WeightFormat& format = FormatOf(Find(part.weight), 0);
    if (!segments.empty() && segments.back().format == &format) {
      segments.back().rows += part.rows;
    } else {
      segments.push_back({part.rows, &format});
    }
  }
  WeightMatrix matrix(segments, inputs, arena_);
  int64_t first = 0;
  for (const NamedRows& part : parts) {
    if (part.rows == 0) continue;
    const WeightTensor& tensor = Find(part.weight);
    const int64_t panel = matrix.PanelOf(first), end = first + part.rows;
    const int64_t panels = matrix.PanelOf(end - 1) + 1 - panel;
    executor_.ParallelFor(panels, [&](int64_t task, int worker) {
      const int64_t p = panel + task, output = matrix.FirstOutput(p);
      const int64_t begin = std::max(output, first);
      const int64_t count = std::min(output + matrix.Outputs(p), end) - begin;
      SetRows(tensor, begin - first, begin, count, worker, matrix);
    });
    source_.Release(tensor);
    Note(tensor, matrix.FormatAt(panel));
    if (!part.bias.empty()) {
      matrix.SetBias(first, part.rows, Read(Find(part.bias)).data());
    }
    first += part.rows;
  }
  return matrix;
}

std::vector<WeightMatrix> Packer::Matrices(const std::string& name,
                                           int64_t count, int64_t outputs,
                                           int64_t inputs) {
  const WeightTensor& tensor = Find(name);
  std::vector<WeightMatrix> matrices;
  for (int64_t i = 0; i < count; ++i) {
    matrices.emplace_back(outputs, inputs, FormatOf(tensor, i), arena_);
  }
  executor_.ParallelFor(count, [&](int64_t i, int worker) {
    SetRows(tensor, i * outputs, 0, outputs, worker,
            matrices[static_cast<size_t>(i)]);
  });
  source_.Release(tensor);
  if (count > 0) Note(tensor, matrices.front().FormatAt(0));
  return matrices;
}

}  // namespace tarn
