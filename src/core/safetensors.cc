#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/file.h"
#include "core/files/file_bytes.h"
#include "core/half.h"
#include "core/safetensors_header.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian and is read without swapping");

namespace tarn {
namespace {

FormatError LengthMissing(const std::string& path, uint64_t got) {
  return FormatError(StrCat(path, ": byte 0"), "8 bytes of header length",
                     StrCat(got, " bytes"));
}

// size: of the file; empty for a stream.
std::optional<Error> CheckHeaderLength(const std::string& path, uint64_t length,
                                       std::optional<uint64_t> size) {
  uint64_t max_length = kMaxSafetensorsHeader;
  if (size) {
    // The size may have been read before the file shrank to under 8 bytes.
    const uint64_t rest =
        std::max(*size, kSafetensorsLengthBytes) - kSafetensorsLengthBytes;
    max_length = std::min(max_length, rest);
  }
  if (length >= 2 && length <= max_length) return std::nullopt;
  return FormatError(StrCat(path, ": byte 0"),
                     StrCat("a header length from 2 to ", max_length),
                     StrCat(length));
}

Result<uint64_t> ReadHeaderLength(const OpenedFile& source) {
  uint64_t length = 0;
  const int64_t got = ReadFully(
      source.fd.get(), reinterpret_cast<uint8_t*>(&length), sizeof(length));
  if (got < 0) return SystemError(source.path, "a readable file", errno);
  if (got < static_cast<int64_t>(sizeof(length))) {
    return LengthMissing(source.path, static_cast<uint64_t>(got));
  }
  if (auto error = CheckHeaderLength(source.path, length, source.size)) {
    return *error;
  }
  return length;
}

// A stream must end where its last tensor ends, as a file must.
std::optional<Error> CheckEnd(const OpenedFile& source, uint64_t offset) {
  uint8_t byte;
  const int64_t got = ReadFully(source.fd.get(), &byte, 1);
  if (got < 0) return SystemError(source.path, "a readable file", errno);
  if (got == 0) return std::nullopt;
  return FormatError(StrCat(source.path, ": byte ", offset),
                     "the end of the file", "more bytes");
}

}  // namespace

int64_t TensorEntry::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

struct SafetensorsFile::Impl {
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const TensorEntry*> by_name;
  uint64_t data_offset = 0;
  AlignedBuffer copy;   // of the data area, or
  FileMapping mapping;  // of the file
  const uint8_t* data = nullptr;
  SafetensorsTypes types = SafetensorsTypes::kNumbers;

  std::optional<Error> Load(const std::string& path, bool use_mmap);
  std::optional<Error> LoadBytes(const std::string& name,
                                 std::span<const uint8_t> bytes);
  std::optional<Error> Parse(const std::string& path, std::string_view json,
                             std::optional<uint64_t> data_bytes);
  std::optional<Error> LoadHeader(const OpenedFile& source);
  std::optional<Error> LoadData(const OpenedFile& source, bool use_mmap);
};

std::optional<Error> SafetensorsFile::Impl::Load(const std::string& path,
                                                 bool use_mmap) {
  auto source = OpenedFile::Open(path);
  if (!source.ok()) return source.error();
  if (auto error = LoadHeader(source.value())) return error;
  return LoadData(source.value(), use_mmap);
}

std::optional<Error> SafetensorsFile::Impl::LoadHeader(
    const OpenedFile& source) {
  const auto length = ReadHeaderLength(source);
  if (!length.ok()) return length.error();
  data_offset = kSafetensorsLengthBytes + length.value();
  // Copied even when the file is mapped later: what is checked stays as it is.
  AlignedBuffer text;
  if (auto error =
          ReadNext(source, kSafetensorsLengthBytes, length.value(), text)) {
    return error;
  }
  std::optional<uint64_t> data_bytes;
  if (source.size) data_bytes = *source.size - data_offset;
  return Parse(source.path,
               {reinterpret_cast<const char*>(text.get()),
                static_cast<size_t>(length.value())},
               data_bytes);
}

std::optional<Error> SafetensorsFile::Impl::Parse(
    const std::string& path, std::string_view json,
    std::optional<uint64_t> data_bytes) {
  auto parsed = ParseSafetensorsHeader(path, json, data_bytes, types);
  if (!parsed.ok()) return parsed.error();
  header = std::move(parsed).value();
  by_name.reserve(header.tensors.size());
  for (const TensorEntry& entry : header.tensors) {
    by_name.emplace(entry.name, &entry);
  }
  return std::nullopt;
}

std::optional<Error> SafetensorsFile::Impl::LoadData(const OpenedFile& source,
                                                     bool use_mmap) {
  if (use_mmap && source.size) {
    if (!mapping.Map(source.fd.get(), *source.size)) {
      return SystemError(source.path, "a file that can be mapped", errno);
    }
    data = mapping.get() + data_offset;
    return std::nullopt;
  }
  if (auto error = ReadNext(source, data_offset, header.data_bytes, copy)) {
    return error;
  }
  data = copy.get();
  if (source.size) return std::nullopt;
  return CheckEnd(source, data_offset + header.data_bytes);
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept =
    default;
SafetensorsFile::~SafetensorsFile() = default;

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                              bool use_mmap,
                                              SafetensorsTypes types) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->types = types;
    if (auto error = impl->Load(path, use_mmap)) return *error;
    return SafetensorsFile(std::move(impl));
  } catch (const std::bad_alloc&) {
    return IoError(path, "memory for its contents", "none left");
  }
}

std::optional<Error> SafetensorsFile::Impl::LoadBytes(
    const std::string& name, std::span<const uint8_t> bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) return LengthMissing(name, bytes.size());
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (auto error = CheckHeaderLength(name, length, bytes.size())) return error;
  data_offset = kSafetensorsLengthBytes + length;
  data = bytes.data() + data_offset;
  const char* json =
      reinterpret_cast<const char*>(bytes.data()) + kSafetensorsLengthBytes;
  return Parse(name, {json, static_cast<size_t>(length)},
               bytes.size() - data_offset);
}

Result<SafetensorsFile> SafetensorsFile::OfBytes(const std::string& name,
                                                 std::span<const uint8_t> bytes,
                                                 SafetensorsTypes types) {
  auto impl = std::make_unique<Impl>();
  impl->types = types;
  if (auto error = impl->LoadBytes(name, bytes)) return *error;
  return SafetensorsFile(std::move(impl));
}

const std::vector<TensorEntry>& SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}

const TensorEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : found->second;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

uint64_t SafetensorsFile::data_offset() const { return impl_->data_offset; }

const uint8_t* SafetensorsFile::Data(const TensorEntry& entry) const {
  return impl_->data + entry.begin;
}

void SafetensorsFile::Release(const TensorEntry& entry) const {
  impl_->mapping.Release(impl_->data_offset + entry.begin,
                         impl_->data_offset + entry.end);
}

void SafetensorsFile::ReadF32(const TensorEntry& entry, float* out) const {
  const uint8_t* bytes = Data(entry);
  const int64_t elements = entry.elements();
  if (entry.dtype == DType::kF32) {
    if (elements > 0) std::memcpy(out, bytes, elements * sizeof(float));
    return;
  }
  const auto widen = entry.dtype == DType::kBF16 ? BF16ToF32 : F16ToF32;
  for (int64_t i = 0; i < elements; ++i) {
    uint16_t bits;  // copied: the data may be unaligned
    std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
    out[i] = widen(bits);
  }
}

}  // namespace tarn
