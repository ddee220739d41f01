#include "weights/reversed_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "core/numbers/bit_cast.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr int64_t kPushed = int64_t{1} << 20;  // numbers at a time

const WeightTensor& Given(const WeightSource& source,
                          const WeightView::Tensor& made) {
  const WeightTensor* tensor = source.Find(made.name);
  if (tensor != nullptr && tensor->shape == made.part.shape()) return *tensor;
  throw ShapeError(StrCat(source.path(), ": tensor ", Quoted(made.name, 200)),
                   StrCat("shape ", ShapeText(made.part.shape())),
                   tensor == nullptr ? "none" : ShapeText(tensor->shape));
}

// Those of another library, which computed the numbers itself, may have other
// last bits.
constexpr float kSameNumber = 1e-6f;

// Numbers that no tensor will hold.
class FilledCheck final : public WeightSink {
 public:
  explicit FilledCheck(std::string where) : where_(std::move(where)) {}
  void Take(const WeightTensor&, WeightRange, WeightRange,
            const float*) override {}
  void TakeFilled(float value, const float* numbers, int64_t count) override {
    for (int64_t i = 0; i < count; ++i) {
      if (std::abs(numbers[i] - value) <= kSameNumber * std::abs(value)) {
        continue;
      }
      throw FormatError(where_,
                        StrCat("numbers that are all ", value,
                               ", as the published form does not hold them"),
                        StrCat(numbers[i]));
    }
  }

 private:
  const std::string where_;
};

// One tensor, number by number.
class Gathered final : public WeightSink {
 public:
  Gathered(const WeightTensor& tensor, std::vector<float>& numbers)
      : tensor_(tensor), numbers_(numbers) {
    const auto count = static_cast<size_t>(tensor.elements());
    numbers_.assign(count, 0.0f);
    given_.assign(count, false);
  }
  void Take(const WeightTensor& tensor, WeightRange rows, WeightRange columns,
            const float* numbers) override {
    if (tensor.name != tensor_.name) return;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t c = columns.begin; c < columns.end; ++c) {
        Put(r * tensor_.columns() + c, *numbers++);
      }
    }
  }
  void TakeFilled(float, const float*, int64_t) override {}
  void RequireWhole(const std::string& where) const {
    const auto missing = std::find(given_.begin(), given_.end(), false);
    if (missing == given_.end()) return;
    throw FormatError(Name(where), "a tensor that gives each of its numbers",
                      StrCat("none for number ", missing - given_.begin()));
  }
  std::string Name(const std::string& where) const {
    return StrCat(where, ": for tensor ", Quoted(tensor_.name, 200));
  }

 private:
  void Put(int64_t element, float number) {
    const auto at = static_cast<size_t>(element);
    if (given_[at] &&
        BitCast<uint32_t>(numbers_[at]) != BitCast<uint32_t>(number)) {
      throw FormatError(
          StrCat("tensor ", Quoted(tensor_.name, 200), ", number ", element),
          "one value", StrCat(numbers_[at], " and ", number));
    }
    numbers_[at] = number;
    given_[at] = true;
  }

  const WeightTensor& tensor_;
  std::vector<float>& numbers_;
  std::vector<bool> given_;
};

}  // namespace

ReversedView::ReversedView(std::vector<WeightView::Tensor> view,
                           std::shared_ptr<const WeightSource> source)
    : source_(std::move(source)), view_(std::move(view)), held_(kNone) {
  std::vector<WeightTensor> tensors;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < view_.size(); ++i) {
    const WeightTensor& from = Given(*source_, view_[i]);
    for (const WeightTensor& leaf : view_[i].part.Leaves()) {
      if (leaf.name.empty()) {
        FilledCheck check(source_->Where(from));
        Push(i, "", check);
        continue;
      }
      const auto [found, is_new] = places.emplace(leaf.name, tensors.size());
      if (is_new) {
        tensors.push_back({leaf.name, leaf.shape, from.encoding});
        givers_.emplace_back();
        if (from.encoding->narrow == nullptr) {
          tensors.back().encoding = &kF32Encoding;
        }
      }
      WeightTensor& own = tensors[found->second];
      if (own.shape != leaf.shape) {
        throw ShapeError(StrCat("ReversedView: ", Quoted(leaf.name, 200)),
                         StrCat("one shape, ", ShapeText(own.shape)),
                         ShapeText(leaf.shape));
      }
      if (own.encoding != from.encoding) own.encoding = &kF32Encoding;
      std::vector<size_t>& givers = givers_[found->second];
      if (givers.empty() || givers.back() != i) givers.push_back(i);
    }
  }
  SetTensors(std::move(tensors));
}

ReversedView::~ReversedView() = default;

std::string ReversedView::Where(const WeightTensor& tensor, int64_t) const {
  const size_t giver = givers_[IndexOf(tensor)].front();
  return StrCat(source_->Where(*source_->Find(view_[giver].name)), ", as ",
                Quoted(tensor.name, 200));
}

void ReversedView::Push(size_t from, const std::string& name,
                        WeightSink& sink) const {
  const WeightTensor& tensor = *source_->Find(view_[from].name);
  const WeightRange all = view_[from].part.RowsOf(name);
  const int64_t most =
      std::max<int64_t>(1, kPushed / std::max<int64_t>(1, tensor.columns()));
  std::vector<float> numbers;
  for (int64_t row = all.begin; row < all.end; row += most) {
    const WeightRange rows = {row, std::min(row + most, all.end)};
    numbers.resize(static_cast<size_t>(rows.size() * tensor.columns()));
    source_->ReadRows(tensor, rows, numbers.data());
    view_[from].part.Write(rows, numbers.data(), sink);
  }
}

const std::vector<float>& ReversedView::Numbers(size_t index) const {
  if (held_ == index) return numbers_;
  held_ = kNone;
  const WeightTensor& tensor = tensors()[index];
  Gathered gathered(tensor, numbers_);
  for (const size_t giver : givers_[index]) {
    Push(giver, tensor.name, gathered);
    source_->Release(*source_->Find(view_[giver].name));
  }
  gathered.RequireWhole(source_->path());
  held_ = index;
  return numbers_;
}

void ReversedView::Release(const WeightTensor&) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = kNone;
  numbers_ = {};
}

void ReversedView::ReadPart(size_t index, WeightRange rows, WeightRange columns,
                            float* out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<float>& numbers = Numbers(index);
  const int64_t width = tensors()[index].columns();
  for (int64_t r = rows.begin; r < rows.end; ++r, out += columns.size()) {
    std::copy_n(numbers.begin() + r * width + columns.begin, columns.size(),
                out);
  }
}

void ReversedView::ReadStoredPart(size_t index, WeightRange rows,
                                  WeightRange columns, uint8_t* out) const {
  std::vector<float> numbers(static_cast<size_t>(rows.size() * columns.size()));
  ReadPart(index, rows, columns, numbers.data());
  tensors()[index].encoding->narrow(numbers.data(), std::ssize(numbers), out);
}

}  // namespace tarn
