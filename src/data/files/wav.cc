#include "data/files/wav.h"

#include "core/text.h"

namespace tarn::train {
namespace {

constexpr size_t kChunkHeader = 8;  // four letters and a size
constexpr size_t kFormatBytes = 16;
constexpr uint32_t kPcm = 1;

// Little-endian on any machine.
uint32_t Read16(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) |
         static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + 1])) << 8;
}
uint32_t Read32(std::string_view bytes, size_t at) {
  return Read16(bytes, at) | Read16(bytes, at + 2) << 16;
}

// Reads the chunks of one file; the first error ends the scan.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  WavClip Read() {
    if (bytes_.size() > kMaxWavBytes) {
      Refuse(0, StrCat("at most ", kMaxWavBytes, " bytes"),
             StrCat(bytes_.size()));
    }
    CheckContainer();
    size_t at = 12;
    while (at < bytes_.size()) at = ReadChunk(at);
    if (clip_.samples.empty()) Refuse(at, "a chunk 'data'", "the end");
    return std::move(clip_);
  }

 private:
  [[noreturn]] void Refuse(size_t at, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError(StrCat(name_, ": byte ", at), wanted, given);
  }

  void Want(size_t at, const char* what, uint32_t wanted,
            uint32_t given) const {
    if (wanted == given) return;
    Refuse(at, StrCat(what, " ", wanted), StrCat(given));
  }

  void CheckContainer() const {
    if (bytes_.size() < 12 || bytes_.substr(0, 4) != "RIFF" ||
        bytes_.substr(8, 4) != "WAVE") {
      Refuse(0, "a RIFF WAVE file", Quoted(bytes_.substr(0, 12)));
    }
    const uint64_t size = uint64_t{Read32(bytes_, 4)} + kChunkHeader;
    if (size != bytes_.size()) {
      Refuse(4, StrCat(size, " bytes, as the header says"),
             StrCat(bytes_.size()));
    }
  }

  // Returns where the next chunk begins: chunks are padded to even sizes.
  size_t ReadChunk(size_t at) {
    if (bytes_.size() - at < kChunkHeader) {
      Refuse(at, "a chunk or the end", StrCat(bytes_.size() - at, " bytes"));
    }
    const std::string_view id = bytes_.substr(at, 4);
    const uint64_t size = Read32(bytes_, at + 4);
    const uint64_t padded = size + (size & 1);
    const size_t begin = at + kChunkHeader;
    if (padded > bytes_.size() - begin) {
      Refuse(at, StrCat("a chunk ", Quoted(id), " of ", padded, " bytes"),
             StrCat(bytes_.size() - begin, " bytes left"));
    }
    if (id == "fmt ") ReadFormat(begin, size);
    if (id == "data") ReadData(begin, size);
    return begin + padded;
  }

  void ReadFormat(size_t at, uint64_t size) {
    if (clip_.sample_rate != 0) Refuse(at, "one chunk 'fmt '", "another");
    Want(at, "a format chunk of bytes:", kFormatBytes,
         static_cast<uint32_t>(size));
    Want(at, "PCM, format", kPcm, Read16(bytes_, at));
    Want(at + 2, "channels:", 1, Read16(bytes_, at + 2));
    const uint32_t rate = Read32(bytes_, at + 4);
    if (rate < 1 || rate > kMaxSampleRate) {
      Refuse(at + 4, StrCat("1 to ", kMaxSampleRate, " Hz"), StrCat(rate));
    }
    Want(at + 8, "bytes a second:", 2 * rate, Read32(bytes_, at + 8));
    Want(at + 12, "bytes a sample:", 2, Read16(bytes_, at + 12));
    Want(at + 14, "bits a sample:", 16, Read16(bytes_, at + 14));
    clip_.sample_rate = rate;
  }

  void ReadData(size_t at, uint64_t size) {
    if (clip_.sample_rate == 0) Refuse(at, "'fmt ' before 'data'", "none");
    if (!clip_.samples.empty()) Refuse(at, "one chunk 'data'", "another");
    if (size == 0 || size % 2 != 0) {
      Refuse(at, "one sample or more of two bytes", StrCat(size, " bytes"));
    }
    clip_.samples.resize(size / 2);
    for (size_t i = 0; i < clip_.samples.size(); ++i) {
      clip_.samples[i] = static_cast<int16_t>(Read16(bytes_, at + 2 * i));
    }
  }

  std::string_view bytes_;
  const std::string& name_;
  WavClip clip_;
};

}  // namespace

Result<WavClip> ParseWav(std::string_view bytes, const std::string& name) {
  try {
    return Reader(bytes, name).Read();
  } catch (const FormatError& error) {
    return static_cast<const Error&>(error);
  }
}

}  // namespace tarn::train
