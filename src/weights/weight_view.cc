#include "weights/weight_view.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/text.h"
#include "weights/weight_nodes.h"

namespace tarn {
namespace {

void RequireRange(const char* what, WeightRange range, int64_t size) {
  if (0 <= range.begin && range.begin <= range.end && range.end <= size) return;
  throw ShapeError(StrCat("WeightPart: ", what),
                   StrCat("a range in [0, ", size, "]"),
                   StrCat("[", range.begin, ", ", range.end, ")"));
}

}  // namespace

WeightPart::WeightPart(std::shared_ptr<const WeightSource> source,
                       const std::string& name)
    : node_(WholeTensor(std::move(source), name)) {}

const std::vector<int64_t>& WeightPart::shape() const {
  return node_->tensor.shape;
}

const Encoding& WeightPart::encoding() const { return *node_->tensor.encoding; }

WeightPart WeightPart::Reshaped(std::vector<int64_t> shape) const {
  int64_t product = 1;
  for (const int64_t size : shape) {
    // Sizes that divide what is left cannot overflow.
    if (size < 0 || (size > 0 && product > node_->tensor.elements() / size)) {
      product = -1;
      break;
    }
    product *= size;
  }
  if (product != node_->tensor.elements()) {
    throw ShapeError("WeightPart::Reshaped: shape",
                     StrCat(node_->tensor.elements(), " numbers"),
                     ShapeText(shape));
  }
  return WeightPart(ReshapedTo(node_, std::move(shape)));
}

WeightPart WeightPart::Transposed() const {
  if (shape().size() != 2) {
    throw ShapeError("WeightPart::Transposed: tensor", "two axes",
                     ShapeText(shape()));
  }
  return WeightPart(TransposeOf(node_));
}

WeightPart WeightPart::Rows(WeightRange rows) const {
  if (shape().empty()) {
    throw ShapeError("WeightPart::Rows: tensor", "at least one axis", "[]");
  }
  RequireRange("rows", rows, node_->tensor.rows());
  return WeightPart(RangeOf(node_, rows, {0, node_->tensor.columns()}));
}

WeightPart WeightPart::Columns(WeightRange columns) const {
  if (shape().size() != 2) {
    throw ShapeError("WeightPart::Columns: tensor", "two axes",
                     ShapeText(shape()));
  }
  RequireRange("columns", columns, node_->tensor.columns());
  return WeightPart(RangeOf(node_, {0, node_->tensor.rows()}, columns));
}

WeightPart WeightPart::Stacked(const std::vector<WeightPart>& parts) {
  std::vector<WeightNode> nodes;
  for (const WeightPart& part : parts) {
    const auto tail = [](const std::vector<int64_t>& shape) {
      return std::vector<int64_t>(shape.begin() + 1, shape.end());
    };
    if (part.shape().empty() || tail(part.shape()) != tail(parts[0].shape())) {
      throw ShapeError("WeightPart::Stacked: part",
                       StrCat("a shape like ", ShapeText(parts[0].shape()),
                              " in all axes but the first"),
                       ShapeText(part.shape()));
    }
    nodes.push_back(part.node_);
  }
  if (nodes.empty()) {
    throw ShapeError("WeightPart::Stacked: parts", "at least one", "none");
  }
  return WeightPart(StackOf(std::move(nodes)));
}

WeightPart WeightPart::Beside(const std::vector<WeightPart>& parts) {
  std::vector<WeightNode> nodes;
  for (const WeightPart& part : parts) {
    if (part.shape().size() != 2 || part.shape()[0] != parts[0].shape()[0]) {
      throw ShapeError(
          "WeightPart::Beside: part",
          StrCat("a matrix with the rows of ", ShapeText(parts[0].shape())),
          ShapeText(part.shape()));
    }
    nodes.push_back(part.node_);
  }
  if (nodes.empty()) {
    throw ShapeError("WeightPart::Beside: parts", "at least one", "none");
  }
  return WeightPart(BesideOf(std::move(nodes)));
}

WeightPart WeightPart::Filled(std::vector<int64_t> shape, float value) {
  for (const int64_t size : shape) {
    if (size >= 0) continue;
    throw ShapeError("WeightPart::Filled: shape", "sizes of at least 0",
                     ShapeText(shape));
  }
  return WeightPart(FilledWith(std::move(shape), value));
}

WeightPart WeightPart::Scaled(float factor) const {
  return WeightPart(ScaledBy(node_, factor));
}

WeightPart WeightPart::Named(std::string name, std::vector<int64_t> shape) {
  return WeightPart(WrittenTensor(std::move(name), std::move(shape)));
}

WeightPart WeightPart::Sized(std::vector<int64_t> shape) const {
  return WeightPart(node_->Sized(std::move(shape)));
}

void WeightPart::Write(WeightRange rows, const float* numbers,
                       WeightSink& sink) const {
  RequireRange("rows", rows, node_->tensor.rows());
  const WeightRange columns = {0, node_->tensor.columns()};
  if (rows.size() > 0 && columns.size() > 0) {
    node_->Write(rows, columns, numbers, sink);
  }
}

WeightRange WeightPart::RowsOf(const std::string& tensor) const {
  return node_->RowsOf(tensor);
}

std::vector<WeightTensor> WeightPart::Leaves() const {
  std::vector<WeightTensor> leaves;
  node_->AddLeaves(leaves);
  return leaves;
}

WeightPart WeightPart::Shifted(float term) const {
  return WeightPart(ShiftedBy(node_, term));
}

WeightPart WeightPart::LogOfNegated() const {
  return WeightPart(LogOfNegatedOf(node_));
}

WeightView::WeightView(std::string path, std::vector<Tensor> tensors)
    : path_(std::move(path)) {
  std::vector<WeightTensor> list;
  std::set<std::string> names;
  for (Tensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw ArgumentError("WeightView: tensors", "each name once",
                          Quoted(tensor.name, 200));
    }
    list.push_back({tensor.name, tensor.part.shape(), &tensor.part.encoding()});
    parts_.push_back(std::move(tensor.part));
  }
  SetTensors(std::move(list));
}

WeightView::~WeightView() = default;

std::string WeightView::Where(const WeightTensor& tensor,
                              int64_t element) const {
  const int64_t width = std::max<int64_t>(1, tensor.columns());
  return StrCat(
      parts_[IndexOf(tensor)].node_->Where(element / width, element % width),
      ", as ", Quoted(tensor.name, 200));
}

void WeightView::Release(const WeightTensor& tensor) const {
  parts_[IndexOf(tensor)].node_->Release();
}

void WeightView::ReadPart(size_t index, WeightRange rows, WeightRange columns,
                          float* out) const {
  parts_[index].node_->Read(rows, columns, out);
}

void WeightView::ReadStoredPart(size_t index, WeightRange rows,
                                WeightRange columns, uint8_t* out) const {
  parts_[index].node_->ReadStored(rows, columns, out);
}

}  // namespace tarn
