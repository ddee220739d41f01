// Safetensors: the header's reader, all numbers of the tensors, and the file as
// a source of weights, in which tensors may be stored in groups.
#include <cstring>
#include <vector>

#include "core/safetensors.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_source.h"

namespace tarn::fuzz {
namespace {

void ReadAll(std::span<const uint8_t> bytes, SafetensorsTypes types) {
  const Result<SafetensorsFile> opened =
      SafetensorsFile::OfBytes("input", bytes, types);
  if (!opened.ok()) return CheckRefusal(opened.error());
  const SafetensorsFile& file = opened.value();
  for (const TensorEntry& entry : file.tensors()) {
    Require(file.Find(entry.name) != nullptr, "a tensor that is not found");
    const auto count = static_cast<size_t>(entry.elements());
    if (entry.is_bytes) {
      std::vector<uint8_t> copy(count);
      if (count > 0) std::memcpy(copy.data(), file.Data(entry), count);
    } else {
      std::vector<float> values(count);
      file.ReadF32(entry, values.data());
    }
  }
  ++Accepted();
}

void ReadWeights(std::span<const uint8_t> bytes) {
  static const MemoryFile file;
  file.Set(bytes);
  const auto source = OpenWeightFile(file.path());
  if (!source.ok()) return CheckRefusal(source.error());
  ReadSource(*source.value());
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::span<const uint8_t> bytes(data, size);
  fuzz::ReadAll(bytes, SafetensorsTypes::kNumbers);
  fuzz::ReadAll(bytes, SafetensorsTypes::kNumbersAndBytes);
  fuzz::Try([&] { fuzz::ReadWeights(bytes); });
  return 0;
}
