#include "weights/gguf/gguf_source.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/text.h"

namespace tarn {
namespace {

class GgufSource final : public WeightSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufFile> file)
      : file_(std::move(file)) {
    std::vector<WeightTensor> tensors;
    for (const GgufTensor& tensor : file_->tensors()) {
      tensors.push_back({tensor.name, tensor.shape, tensor.encoding});
    }
    SetTensors(std::move(tensors));
  }

  std::string path() const override { return file_->path(); }

  std::string Where(const WeightTensor& tensor,
                    int64_t element) const override {
    const GgufTensor& stored = file_->tensors()[IndexOf(tensor)];
    const int64_t block = tensor.encoding->numbers;
    return StrCat(path(), ": tensor ", Quoted(tensor.name, 200), " at byte ",
                  file_->data_offset() + stored.begin +
                      static_cast<uint64_t>(
                          tensor.encoding->Bytes(element / block * block)));
  }

  void Release(const WeightTensor& tensor) const override {
    file_->Release(file_->tensors()[IndexOf(tensor)]);
  }

 private:
  const uint8_t* At(size_t index, int64_t row, int64_t column) const {
    const WeightTensor& tensor = tensors()[index];
    return file_->Data(file_->tensors()[index]) +
           row * tensor.encoding->Bytes(tensor.columns()) +
           tensor.encoding->Bytes(column);
  }

  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override {
    const WeightTensor& tensor = tensors()[index];
    const int64_t width = columns.size();
    if (width == tensor.columns()) {  // rows follow each other
      tensor.encoding->widen(At(index, rows.begin, 0), rows.size() * width,
                             out);
      return;
    }
    for (int64_t r = rows.begin; r < rows.end; ++r, out += width) {
      tensor.encoding->widen(At(index, r, columns.begin), width, out);
    }
  }

  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    const int64_t bytes = tensors()[index].encoding->Bytes(columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r, out += bytes) {
      std::memcpy(out, At(index, r, columns.begin), static_cast<size_t>(bytes));
    }
  }

  const std::shared_ptr<const GgufFile> file_;
};

}  // namespace

std::shared_ptr<const WeightSource> GgufWeights(
    std::shared_ptr<const GgufFile> file) {
  return std::make_shared<GgufSource>(std::move(file));
}

}  // namespace tarn
