#include "importers/gguf/tensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "core/text.h"
#include "weights/reversed_view.h"

namespace tarn {
namespace {

// Tensors in memory.
class MadeTensors final : public WeightSource {
 public:
  MadeTensors(std::vector<WeightTensor> tensors,
              std::vector<std::vector<float>> numbers)
      : numbers_(std::move(numbers)) {
    SetTensors(std::move(tensors));
  }
  std::string path() const override { return "GGUF"; }
  std::string Where(const WeightTensor& tensor, int64_t) const override {
    return StrCat("tensor ", Quoted(tensor.name, 200));
  }

 private:
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    const int64_t width = tensors()[index].columns();
    for (int64_t r = rows.begin; r < rows.end; ++r, out += columns.size()) {
      std::copy_n(numbers_[index].begin() + r * width + columns.begin,
                  columns.size(), out);
    }
  }
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    std::vector<float> part(static_cast<size_t>(rows.size() * columns.size()));
    ReadPart(index, rows, columns, part.data());
    std::memcpy(out, part.data(), part.size() * sizeof(float));
  }

  const std::vector<std::vector<float>> numbers_;
};

// Without axes of 1 that begin it.
std::span<const int64_t> WithoutOnes(const std::vector<int64_t>& shape) {
  std::span<const int64_t> rest = shape;
  while (rest.size() > 1 && rest[0] == 1) rest = rest.subspan(1);
  return rest;
}

[[noreturn]] void RefuseMissing(const WeightSource& source,
                                const std::string& name) {
  throw FormatError(StrCat(source.path(), ": tensors"),
                    StrCat("a tensor ", Quoted(name, 200)), "none");
}

}  // namespace

GgufTensors GgufTensors::OfFile(std::shared_ptr<const WeightSource> file) {
  GgufTensors tensors;
  tensors.file_ = std::move(file);
  return tensors;
}

GgufTensors GgufTensors::OfPublished(
    std::shared_ptr<const WeightSource> published) {
  GgufTensors tensors;
  tensors.published_ = std::move(published);
  return tensors;
}

bool GgufTensors::Has(const std::string& published,
                      const std::string& name) const {
  return writes() ? published_->Find(published) != nullptr
                  : file_->Find(name) != nullptr;
}

WeightPart GgufTensors::operator()(const std::string& name,
                                   const std::vector<int64_t>& shape) {
  if (writes()) return WeightPart::Named(name, shape);
  const WeightTensor* tensor = file_->Find(name);
  if (tensor == nullptr) RefuseMissing(*file_, name);
  const auto wanted = WithoutOnes(shape), given = WithoutOnes(tensor->shape);
  if (!std::equal(wanted.begin(), wanted.end(), given.begin(), given.end())) {
    throw FormatError(file_->Where(*tensor), StrCat("shape ", ShapeText(shape)),
                      ShapeText(tensor->shape));
  }
  read_.push_back(name);
  const WeightPart part(file_, name);
  return tensor->shape == shape ? part : part.Reshaped(shape);
}

void GgufTensors::Add(const std::string& published, WeightPart part) {
  tensors_.push_back({published, std::move(part)});
}

void GgufTensors::Move(const std::string& published, const std::string& name) {
  const WeightSource& source = writes() ? *published_ : *file_;
  const std::string& wanted = writes() ? published : name;
  const WeightTensor* tensor = source.Find(wanted);
  if (tensor == nullptr) RefuseMissing(source, wanted);
  Add(published, (*this)(name, tensor->shape));
}

void GgufTensors::MoveIf(const std::string& published,
                         const std::string& name) {
  if (Has(published, name)) Move(published, name);
}

void GgufTensors::MoveLinear(const std::string& published,
                             const std::string& name) {
  Move(published + ".weight", name + ".weight");
  MoveIf(published + ".bias", name + ".bias");
}

void GgufTensors::MoveAs(const std::string& published, const std::string& name,
                         const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& stored) {
  Add(published, (*this)(name, stored).Reshaped(shape));
}

WeightPart GgufTensors::Numbers(const std::string& name,
                                const std::vector<int64_t>& shape,
                                const std::vector<int64_t>& stored) {
  if (writes()) return (*this)(name, stored).Reshaped(shape);
  const WeightTensor* tensor = file_->Find(name);
  if (tensor == nullptr) RefuseMissing(*file_, name);
  int64_t numbers = 1;  // of a shape that a checked configuration has
  for (const int64_t size : shape) numbers *= size;
  if (tensor->elements() != numbers) {
    throw FormatError(file_->Where(*tensor),
                      StrCat("the numbers of ", ShapeText(shape)),
                      ShapeText(tensor->shape));
  }
  return (*this)(name, tensor->shape).Reshaped(shape);
}

void GgufTensors::Write(const std::string& name, std::vector<int64_t> shape,
                        std::vector<float> numbers) {
  made_.push_back({name, std::move(shape), std::move(numbers)});
}

void GgufTensors::WriteCopy(const std::string& name,
                            const std::string& published) {
  copies_.push_back({name, WeightPart(published_, published)});
}

void GgufTensors::Skip(const std::string& prefix) {
  skipped_.push_back(prefix);
}

void GgufTensors::RequireAllRead() const {
  std::set<std::string_view> known(read_.begin(), read_.end());
  if (writes()) {
    for (const WeightView::Tensor& tensor : tensors_) known.insert(tensor.name);
  }
  const WeightSource& source = writes() ? *published_ : *file_;
  for (const WeightTensor& tensor : source.tensors()) {
    const bool skipped =
        !writes() && std::any_of(skipped_.begin(), skipped_.end(),
                                 [&](const std::string& prefix) {
                                   return tensor.name.starts_with(prefix);
                                 });
    if (skipped || known.contains(tensor.name)) continue;
    throw FormatError(source.Where(tensor),
                      writes() ? "a tensor that the architecture has"
                               : "a name that the architecture asks for",
                      "a tensor that belongs to no part of the model");
  }
}

std::shared_ptr<const WeightSource> GgufTensors::Published(
    const std::string& path) {
  return std::make_shared<WeightView>(path, std::move(tensors_));
}

std::shared_ptr<const WeightSource> GgufTensors::File() {
  auto reversed =
      std::make_shared<ReversedView>(std::move(tensors_), published_);
  if (made_.empty() && copies_.empty()) return reversed;
  std::vector<WeightTensor> tensors;
  std::vector<std::vector<float>> numbers;
  for (Made& made : made_) {
    tensors.push_back({made.name, made.shape, &kF32Encoding});
    numbers.push_back(std::move(made.numbers));
  }
  const std::shared_ptr<const WeightSource> made =
      std::make_shared<MadeTensors>(std::move(tensors), std::move(numbers));
  std::vector<WeightView::Tensor> all;
  for (const auto& source :
       {made, std::shared_ptr<const WeightSource>(reversed)}) {
    for (const WeightTensor& tensor : source->tensors()) {
      all.push_back({tensor.name, WeightPart(source, tensor.name)});
    }
  }
  all.insert(all.end(), copies_.begin(), copies_.end());
  return std::make_shared<WeightView>(reversed->path(), std::move(all));
}

WeightPart UnpermutedHeads(GgufTensors& from, const std::string& name,
                           int64_t heads, int64_t width, int64_t inputs) {
  const int64_t rows = heads * width, half = width / 2;
  const int64_t columns = std::max<int64_t>(inputs, 1);
  const WeightPart stored =
      from(name, inputs == 0 ? std::vector<int64_t>{rows}
                             : std::vector<int64_t>{rows, inputs});
  // Rows 2i and 2i + 1 of a head next to each other.
  const WeightPart pairs = stored.Reshaped({heads * half, 2 * columns});
  const WeightPart first = pairs.Columns({0, columns});
  const WeightPart second = pairs.Columns({columns, 2 * columns});
  std::vector<WeightPart> parts;
  for (int64_t h = 0; h < heads; ++h) {
    parts.push_back(first.Rows({h * half, (h + 1) * half}));
    parts.push_back(second.Rows({h * half, (h + 1) * half}));
  }
  const WeightPart whole = WeightPart::Stacked(parts);
  return inputs == 0 ? whole.Reshaped({rows}) : whole;
}

}  // namespace tarn
