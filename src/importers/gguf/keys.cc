#include "importers/gguf/keys.h"

#include <limits>
#include <utility>

#include "core/numbers/number_text.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr const char* kArchitectureKey = "general.architecture";

// 1e-5 of a file is the float32 next to it: the decimal number was meant, and
// is what a directory has.
double ShortestDecimal(double value) {
  const float stored = static_cast<float>(value);
  if (static_cast<double>(stored) != value) return value;
  char text[32];
  const char* end = ToChars(text, text + sizeof(text), stored).ptr;
  double shortest = value;
  FromChars(text, end, shortest);
  return shortest;
}

}  // namespace

GgufKeys::GgufKeys(const GgufFile& file, const WeightSource& weights)
    : file_(file),
      weights_(weights),
      architecture_(file.Text(kArchitectureKey)) {}

std::string GgufKeys::Whole(std::string_view key) const {
  return StrCat(architecture_, ".", key);
}

bool GgufKeys::Has(std::string_view key) const { return file_.Has(Whole(key)); }

const std::string& GgufKeys::Read(const std::string& whole) {
  return *read_.insert(whole).first;
}

int64_t GgufKeys::Integer(std::string_view key, int64_t least, int64_t most) {
  return file_.Integer(Read(Whole(key)), least, most);
}

int64_t GgufKeys::Integer(std::string_view key, int64_t least, int64_t most,
                          int64_t value) {
  return Has(key) ? Integer(key, least, most) : value;
}

double GgufKeys::Real(std::string_view key) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return ShortestDecimal(file_.Real(Read(Whole(key)), -kMost, kMost));
}

double GgufKeys::Real(std::string_view key, double value) {
  return Has(key) ? Real(key) : value;
}

bool GgufKeys::Flag(std::string_view key, bool value) {
  return Has(key) ? file_.Flag(Read(Whole(key))) : value;
}

std::string GgufKeys::Text(std::string_view key, const std::string& value) {
  return Has(key) ? file_.Text(Read(Whole(key))) : value;
}

std::vector<int64_t> GgufKeys::PerLayer(std::string_view key, int64_t least,
                                        int64_t most, int64_t count) {
  const auto size = static_cast<size_t>(count);
  if (!Has(key) || file_.TypeOf(Whole(key)) != GgufType::kArray) {
    return std::vector<int64_t>(size, Integer(key, least, most));
  }
  std::vector<int64_t> numbers = Integers(key, least, most, size);
  if (numbers.size() != size) {
    Refuse(key, StrCat("an array of ", count, " integers"),
           StrCat(numbers.size()));
  }
  return numbers;
}

std::vector<int64_t> GgufKeys::Integers(std::string_view key, int64_t least,
                                        int64_t most, uint64_t most_items) {
  if (!Has(key)) return {};
  return file_.Integers(Read(Whole(key)), least, most, most_items);
}

std::vector<bool> GgufKeys::Flags(std::string_view key, uint64_t most_items) {
  if (!Has(key)) return {};
  return file_.Flags(Read(Whole(key)), most_items);
}

void GgufKeys::Ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) Read(Whole(key));
}

void GgufKeys::Want(std::string_view key, bool value) {
  if (Flag(key, value) == value) return;
  Refuse(key, value ? "true" : "false", value ? "false" : "true");
}

void GgufKeys::Want(std::string_view key, const char* value) {
  const std::string given = Text(key, value);
  if (given != value) Refuse(key, Quoted(value), Quoted(given));
}

void GgufKeys::RequireAllRead() const {
  const std::string prefix = architecture_ + ".";
  for (const std::string& key : file_.keys()) {
    if (!key.starts_with(prefix) || read_.contains(key)) continue;
    throw FormatError(file_.Where(key),
                      StrCat("a key of '", architecture_, "' that tarn knows"),
                      "another one");
  }
}

void GgufKeys::Refuse(std::string_view key, const std::string& wanted,
                      const std::string& given) const {
  throw FormatError(file_.Where(Whole(key)), wanted, given);
}

bool GgufKeys::HasTensor(std::string_view name) const {
  return weights_.Find(name) != nullptr;
}

const std::vector<int64_t>& GgufKeys::ShapeOf(std::string_view name) const {
  const WeightTensor* tensor = weights_.Find(name);
  if (tensor != nullptr) return tensor->shape;
  throw FormatError(StrCat(file_.path(), ": tensors"),
                    StrCat("a tensor ", Quoted(name, 200)), "none");
}

std::vector<float> GgufKeys::Numbers(std::string_view name,
                                     int64_t most) const {
  ShapeOf(name);
  const WeightTensor& tensor = *weights_.Find(name);
  if (tensor.elements() > most) {
    throw FormatError(weights_.Where(tensor),
                      StrCat("at most ", most, " numbers"),
                      StrCat(tensor.elements()));
  }
  std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
  weights_.ReadRows(tensor, {0, tensor.rows()}, numbers.data());
  return numbers;
}

}  // namespace tarn
