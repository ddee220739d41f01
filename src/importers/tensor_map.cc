#include "importers/tensor_map.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/text.h"

namespace tarn {
namespace {

// Of a tensor that is to be written: that of the tensor which becomes it. No
// part can be cut from it.
const std::vector<int64_t> kLaterShape = {-1};

int64_t RowsOfGroup(const std::vector<int64_t>& heights) {
  return std::accumulate(heights.begin(), heights.end(), int64_t{0});
}

WeightPart WithRows(PublishedTensors& from, const std::string& name,
                    int64_t rows, int64_t columns) {
  WeightPart part =
      from.Named(name, columns == 0 ? std::vector<int64_t>{rows}
                                    : std::vector<int64_t>{rows, columns});
  if (!part.shape().empty() && part.shape()[0] == rows) return part;
  throw FormatError(from.Where(name), StrCat(rows, " rows"),
                    StrCat("shape ", ShapeText(part.shape())));
}

}  // namespace

bool PublishedTensors::Has(const std::string& name) const {
  return source_ != nullptr && source_->Find(name) != nullptr;
}

bool PublishedTensors::HasUnder(std::string_view prefix) const {
  return source_ != nullptr &&
         std::any_of(source_->tensors().begin(), source_->tensors().end(),
                     [&](const WeightTensor& tensor) {
                       return tensor.name.starts_with(prefix);
                     });
}

WeightPart PublishedTensors::operator()(const std::string& name) {
  if (source_ == nullptr) return WeightPart::Named(name, kLaterShape);
  if (!Has(name)) {
    throw FormatError(StrCat(source_->path(), ": tensors"),
                      StrCat("a tensor ", Quoted(name, 200)), "none");
  }
  read_.push_back(name);
  return WeightPart(source_, name);
}

WeightPart PublishedTensors::Named(const std::string& name,
                                   const std::vector<int64_t>& shape) {
  return source_ == nullptr ? WeightPart::Named(name, shape) : (*this)(name);
}

WeightPart PublishedTensors::operator()(const std::string& name,
                                        const std::vector<int64_t>& shape) {
  if (source_ == nullptr) return WeightPart::Named(name, shape);
  WeightPart part = (*this)(name);
  if (part.shape() == shape) return part;
  throw FormatError(Where(name), StrCat("shape ", ShapeText(shape)),
                    ShapeText(part.shape()));
}

WeightPart PublishedTensors::Reshaped(const std::string& name,
                                      const std::vector<int64_t>& shape,
                                      const std::vector<int64_t>& stored) {
  const WeightPart part = Named(name, stored);
  const auto numbers = [](const std::vector<int64_t>& sizes) {
    int64_t product = 1;  // of sizes of a file or of a checked configuration
    for (const int64_t size : sizes) product *= size;
    return product;
  };
  if (numbers(part.shape()) == numbers(shape)) return part.Reshaped(shape);
  throw FormatError(Where(name), StrCat("the numbers of ", ShapeText(shape)),
                    StrCat("shape ", ShapeText(part.shape())));
}

bool PublishedTensors::Same(const std::string& one,
                            const std::string& other) const {
  if (source_ == nullptr) return false;
  const WeightTensor *a = source_->Find(one), *b = source_->Find(other);
  if (a == nullptr || b == nullptr || a->shape != b->shape) return false;
  constexpr int64_t kRows = 64;
  std::vector<float> first(static_cast<size_t>(kRows * a->columns()));
  std::vector<float> second(first.size());
  for (int64_t row = 0; row < a->rows(); row += kRows) {
    const WeightRange rows = {row, std::min(row + kRows, a->rows())};
    const size_t count = static_cast<size_t>(rows.size() * a->columns());
    source_->ReadRows(*a, rows, first.data());
    source_->ReadRows(*b, rows, second.data());
    if (!std::equal(first.begin(), first.begin() + static_cast<int64_t>(count),
                    second.begin())) {
      return false;
    }
  }
  return true;
}

std::string PublishedTensors::Where(const std::string& name) const {
  if (source_ == nullptr) return StrCat("tensor ", Quoted(name, 200));
  const WeightTensor* tensor = source_->Find(name);
  return tensor == nullptr ? source_->path() : source_->Where(*tensor);
}

void PublishedTensors::Skip(const std::string& prefix) {
  skipped_.push_back(prefix);
}

void PublishedTensors::RequireAllRead() const {
  const std::set<std::string_view> read(read_.begin(), read_.end());
  for (const WeightTensor& tensor : source_->tensors()) {
    const bool skipped = std::any_of(skipped_.begin(), skipped_.end(),
                                     [&](const std::string& prefix) {
                                       return tensor.name.starts_with(prefix);
                                     });
    if (skipped || read.contains(tensor.name)) continue;
    throw FormatError(source_->Where(tensor),
                      "a name that config.json asks for",
                      "a tensor that belongs to no part of the model");
  }
}

GroupedRows::GroupedRows(PublishedTensors& from, const std::string& name,
                         int64_t groups, const std::vector<int64_t>& heights,
                         int64_t columns)
    : GroupedRows(WithRows(from, name, groups * RowsOfGroup(heights), columns),
                  groups, heights) {}

WeightPart GroupedRows::operator[](size_t part) const {
  const int64_t rows = RowsOfGroup(heights_), height = heights_[part];
  const auto begin = heights_.begin();
  const int64_t first =
      std::accumulate(begin, begin + static_cast<int64_t>(part), int64_t{0});
  std::vector<WeightPart> parts;
  for (int64_t g = 0; g < groups_; ++g) {
    parts.push_back(rows_.Rows({g * rows + first, g * rows + first + height}));
  }
  return WeightPart::Stacked(parts);
}

void ImportedTensors::Add(std::string name, WeightPart part) {
  if (part.shape() == kLaterShape) {
    if (shapes_.empty()) {
      for (auto& [own, shape] : WeightShapes(config_)) shapes_[own] = shape;
      for (auto& [own, shape] : MtpShapes(config_)) shapes_[own] = shape;
    }
    part = part.Sized(shapes_[name]);
  }
  tensors_.push_back({std::move(name), std::move(part)});
}

void ImportedTensors::AddLinear(PublishedTensors& from, const std::string& name,
                                const std::string& published, bool bias) {
  Add(name + ".weight", from(published + ".weight"));
  if (bias) Add(name + ".bias", from(published + ".bias"));
}

void ImportedTensors::AddHead(PublishedTensors& from, const std::string& head,
                              const std::string& embedding) {
  if (!config_.tied_head) {
    Add("predictor.weight", from(head));
  } else if (from.Has(head)) {
    if (!from.Same(head, embedding)) {
      throw FormatError(from.Where(head),
                        "a copy of the embedding, to which the head is tied",
                        "other numbers");
    }
    from.Skip(head);
  }
}

}  // namespace tarn
