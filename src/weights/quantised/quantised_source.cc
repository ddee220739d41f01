#include "weights/quantised/quantised_source.h"

#include <optional>
#include <set>
#include <utility>

#include "core/text.h"
#include "weights/quantised/stored_groups.h"

namespace tarn {
namespace {

// One of the tensors that hold a tensor in groups.
struct Part {
  const char* end;  // of its name
  const Encoding* encoding;
  std::vector<int64_t> shape;
};

std::vector<Part> PartsOf(const WeightTensor& tensor) {
  std::vector<Part> parts = {{kCodesEnd, &kBytesEncoding, CodesShape(tensor)},
                             {kScalesEnd, &kF16Encoding, ScalesShape(tensor)}};
  if (tensor.encoding->scheme->minimum) {
    parts.push_back({kMinimaEnd, &kF16Encoding, ScalesShape(tensor)});
  }
  return parts;
}

class QuantisedSource final : public WeightSource {
 public:
  // The tensors' parts are there.
  QuantisedSource(std::shared_ptr<const WeightSource> stored,
                  const std::vector<WeightTensor>& joined)
      : stored_(std::move(stored)) {
    std::set<std::string> parts;
    std::vector<WeightTensor> tensors;
    for (const WeightTensor& tensor : joined) {
      Place place;
      for (const Part& part : PartsOf(tensor)) {
        const std::string name = tensor.name + part.end;
        place.parts.push_back(stored_->Find(name));
        parts.insert(name);
      }
      tensors.push_back(tensor);
      places_.push_back(std::move(place));
    }
    for (const WeightTensor& tensor : stored_->tensors()) {
      if (parts.count(tensor.name) != 0) continue;
      tensors.push_back(tensor);
      places_.push_back({{&tensor}});
    }
    joined_ = joined.size();
    SetTensors(std::move(tensors));
  }

  std::string path() const override { return stored_->path(); }

  // A number's own codes.
  std::string Where(const WeightTensor& tensor,
                    int64_t element) const override {
    const size_t index = IndexOf(tensor);
    const WeightTensor& codes = *places_[index].parts[0];
    if (index >= joined_) return stored_->Where(codes, element);
    const GroupScheme& scheme = *tensor.encoding->scheme;
    const int64_t width = tensor.columns();
    const int64_t at = element % width, group = scheme.group;
    const int64_t inside =
        scheme.bits == 8 ? at % group : at % group % (group / 2);
    return stored_->Where(codes, element / width * codes.columns() +
                                     at / group * CodeBytes(scheme) + inside);
  }

  void Release(const WeightTensor& tensor) const override {
    for (const WeightTensor* part : places_[IndexOf(tensor)].parts) {
      stored_->Release(*part);
    }
  }

 private:
  struct Place {
    std::vector<const WeightTensor*> parts;  // of stored_; the first: codes
  };

  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    const Place& place = places_[index];
    if (index >= joined_) {
      stored_->ReadStored(*place.parts[0], rows, columns, out);
      return;
    }
    const GroupScheme& scheme = *tensors()[index].encoding->scheme;
    const WeightRange blocks = {columns.begin / scheme.group,
                                scheme.Blocks(columns.end)};
    const int64_t count = rows.size() * blocks.size();
    const int64_t code_bytes = CodeBytes(scheme);
    const auto read = [&](size_t part, int64_t bytes) {
      std::vector<uint8_t> data(static_cast<size_t>(count * bytes));
      const int64_t numbers =
          bytes / place.parts[part]->encoding->bytes;  // of a block
      stored_->ReadStored(*place.parts[part], rows,
                          {blocks.begin * numbers, blocks.end * numbers},
                          data.data());
      return data;
    };
    const std::vector<uint8_t> codes = read(0, code_bytes);
    const std::vector<uint8_t> scales = read(1, 2);
    RequireFinite(*place.parts[1], rows, blocks, scales);
    std::vector<uint8_t> minima;
    if (scheme.minimum) {
      minima = read(2, 2);
      RequireFinite(*place.parts[2], rows, blocks, minima);
    }
    JoinBlocks(scheme, count, codes.data(), scales.data(), minima.data(), out);
  }

  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    if (index >= joined_) {
      stored_->Read(*places_[index].parts[0], rows, columns, out);
      return;
    }
    const Encoding& encoding = *tensors()[index].encoding;
    const int64_t bytes = encoding.Bytes(columns.size());
    std::vector<uint8_t> blocks(static_cast<size_t>(rows.size() * bytes));
    ReadStoredPart(index, rows, columns, blocks.data());
    for (int64_t r = 0; r < rows.size(); ++r) {
      encoding.widen(blocks.data() + r * bytes, columns.size(),
                     out + r * columns.size());
    }
  }

  // halves: float16 numbers of these rows and blocks of a tensor.
  void RequireFinite(const WeightTensor& tensor, WeightRange rows,
                     WeightRange blocks,
                     const std::vector<uint8_t>& halves) const {
    for (size_t i = 0; i < halves.size(); i += 2) {
      if ((halves[i + 1] & 0x7C) != 0x7C) continue;
      const int64_t at = static_cast<int64_t>(i / 2);
      const int64_t row = rows.begin + at / blocks.size();
      throw FormatError(
          stored_->Where(tensor, row * tensor.columns() + blocks.begin +
                                     at % blocks.size()),
          "a finite number", "NaN or infinity");
    }
  }

  const std::shared_ptr<const WeightSource> stored_;
  std::vector<Place> places_;  // of tensors()
  size_t joined_ = 0;          // the first of them
};

// The parts of a tensor are there as its scheme and shape have them.
std::optional<Error> CheckParts(const WeightSource& stored,
                                const std::string& path,
                                const WeightTensor& tensor) {
  if (const WeightTensor* twice = stored.Find(tensor.name)) {
    return FormatError(stored.Where(*twice), "a tensor that is stored once",
                       StrCat(tensor.encoding->name, " codes of it as well"));
  }
  for (const Part& part : PartsOf(tensor)) {
    const std::string name = tensor.name + part.end;
    const WeightTensor* found = stored.Find(name);
    const std::string wanted =
        StrCat(part.encoding->name, " ", ShapeText(part.shape), " for ",
               tensor.encoding->name, " ", ShapeText(tensor.shape));
    if (found == nullptr) {
      return FormatError(StrCat(path, ": tensor ", Quoted(name, 200)), wanted,
                         "no such tensor");
    }
    if (found->encoding != part.encoding || found->shape != part.shape) {
      return FormatError(
          stored.Where(*found), wanted,
          StrCat(found->encoding->name, " ", ShapeText(found->shape)));
    }
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const WeightSource>> JoinQuantised(
    std::shared_ptr<const WeightSource> stored,
    const std::vector<QuantisedNote>& notes) {
  std::vector<WeightTensor> joined;
  std::set<std::string> names, codes;
  for (const QuantisedNote& note : notes) {
    const std::string where =
        StrCat(note.path, ": __metadata__: ", kQuantisedKey);
    const auto tensors = QuantisedTensors(note.text, where);
    if (!tensors.ok()) return tensors.error();
    for (const WeightTensor& tensor : tensors.value()) {
      if (!names.insert(tensor.name).second) {
        return FormatError(StrCat(where, ": ", Quoted(tensor.name, 200)),
                           "each tensor in one file", "a second one");
      }
      if (auto error = CheckParts(*stored, note.path, tensor)) return *error;
      codes.insert(tensor.name + kCodesEnd);
      joined.push_back(tensor);
    }
  }
  for (const WeightTensor& tensor : stored->tensors()) {
    if (tensor.encoding == &kBytesEncoding && codes.count(tensor.name) == 0) {
      return FormatError(stored->Where(tensor),
                         "dtype F32, BF16 or F16, or codes of a tensor that "
                         "the metadata name",
                         "U8");
    }
  }
  if (joined.empty()) return stored;
  return std::shared_ptr<const WeightSource>(
      std::make_shared<QuantisedSource>(std::move(stored), joined));
}

}  // namespace tarn
