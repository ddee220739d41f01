#include "data/images/image_files.h"

#include <algorithm>

#include "core/error.h"
#include "data/files/unpack.h"

namespace tarn {
namespace {

constexpr uint32_t kLabelsMagic = 2049, kImagesMagic = 2051,
                   kColourMagic = 2052;
constexpr int64_t kCifarSide = 32, kCifarPlane = kCifarSide * kCifarSide,
                  kCifarImage = 3 * kCifarPlane, kCifarRecord = 1 + kCifarImage;
constexpr int kCifarClasses = 10;

// Big-endian, as IDX has it; `at` + 4 bytes must be there.
int64_t WordAt(std::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word = word << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return word;
}

void AddWord(std::string& bytes, int64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift & 0xff);
  }
}

void CheckSize(const std::string& path, const char* name, int64_t given,
               int64_t most) {
  if (given >= 1 && given <= most) return;
  throw FormatError(path + ": " + name, StrCat("1 to ", most), StrCat(given));
}

// The sizes of an IDX header are checked before they are multiplied: their
// product stays below 2^24 * 2^24 * 3.
ImageSet ReadIdx(const std::string& path, std::string contents,
                 const ImageBounds& bounds) {
  const bool colour = WordAt(contents, 0) == kColourMagic;
  const size_t header = colour ? 20 : 16;
  if (contents.size() < header) {
    throw FormatError(path, StrCat("an IDX header of ", header, " bytes"),
                      StrCat(contents.size(), " bytes"));
  }
  ImageSet images;
  images.count = WordAt(contents, 4);
  images.height = WordAt(contents, 8);
  images.width = WordAt(contents, 12);
  images.channels = colour ? WordAt(contents, 16) : 1;
  CheckSize(path, "images", images.count, bounds.max_images);
  CheckSize(path, "height", images.height, bounds.max_side);
  CheckSize(path, "width", images.width, bounds.max_side);
  if (images.channels != 1 && images.channels != 3) {
    throw FormatError(path + ": channels", "1 or 3", StrCat(images.channels));
  }
  const int64_t wanted =
      static_cast<int64_t>(header) + images.count * images.image_bytes();
  if (static_cast<int64_t>(contents.size()) != wanted) {
    throw FormatError(
        path,
        StrCat(wanted, " bytes for ", images.count, " images of ",
               images.height, " x ", images.width, " x ", images.channels),
        StrCat(contents.size(), " bytes"));
  }
  contents.erase(0, header);
  images.bytes = std::move(contents);
  return images;
}

ImageSet ReadCifar(const std::string& path, const std::string& contents,
                   const ImageBounds& bounds) {
  const auto size = static_cast<int64_t>(contents.size());
  ImageSet images;
  images.count = size / kCifarRecord;
  images.height = images.width = kCifarSide;
  images.channels = 3;
  if (images.count == 0 || size % kCifarRecord != 0) {
    throw FormatError(
        path,
        StrCat("an IDX file of images (magic ", kImagesMagic,
               ") or CIFAR-10 records of ", kCifarRecord, " bytes"),
        StrCat(size, " bytes, the first word ",
               size < 4 ? 0 : WordAt(contents, 0)));
  }
  CheckSize(path, "images", images.count, bounds.max_images);
  images.bytes.resize(images.count * kCifarImage);
  images.labels.resize(images.count);
  for (int64_t i = 0; i < images.count; ++i) {
    const char* record = contents.data() + i * kCifarRecord;
    const auto label = static_cast<unsigned char>(*record);
    if (label >= kCifarClasses) {
      throw FormatError(StrCat(path, ": label of image ", i),
                        StrCat("0 to ", kCifarClasses - 1), StrCat(int{label}));
    }
    images.labels[i] = label;
    char* pixels = images.bytes.data() + i * kCifarImage;
    for (int64_t pixel = 0; pixel < kCifarPlane; ++pixel) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        pixels[3 * pixel + channel] = record[1 + channel * kCifarPlane + pixel];
      }
    }
  }
  return images;
}

}  // namespace

// A CIFAR-10 file whose first image has the class 0 and the red bytes 0, 8, 3
// would be taken for IDX, and refused: no official file is like that.
ImageSet ReadImages(const std::string& path, const ImageBounds& bounds) {
  std::string contents = ReadUnpacked(path, bounds.max_bytes);
  if (contents.size() >= 4) {
    const int64_t magic = WordAt(contents, 0);
    if (magic == kImagesMagic || magic == kColourMagic) {
      return ReadIdx(path, std::move(contents), bounds);
    }
    if (magic == kLabelsMagic) {
      throw FormatError(path, StrCat("images (magic ", kImagesMagic, ")"),
                        StrCat("labels (magic ", kLabelsMagic, ")"));
    }
  }
  return ReadCifar(path, contents, bounds);
}

std::string ImagesToIdx(const ImageSet& images) {
  std::string bytes;
  AddWord(bytes, images.channels == 1 ? kImagesMagic : kColourMagic);
  AddWord(bytes, images.count);
  AddWord(bytes, images.height);
  AddWord(bytes, images.width);
  if (images.channels != 1) AddWord(bytes, images.channels);
  return bytes + images.bytes;
}

ImageSet PoolImages(const ImageSet& images, int64_t size) {
  if (size < 1 || images.height % size != 0 || images.width % size != 0) {
    throw ArgumentError("pool",
                        StrCat("a divisor of the images' ", images.height,
                               " rows and ", images.width, " columns"),
                        StrCat(size));
  }
  if (size == 1) return images;
  ImageSet pooled;
  pooled.count = images.count;
  pooled.height = images.height / size;
  pooled.width = images.width / size;
  pooled.channels = images.channels;
  pooled.labels = images.labels;
  pooled.bytes.resize(pooled.count * pooled.image_bytes());
  const int64_t row = images.width * images.channels;
  char* out = pooled.bytes.data();
  for (int64_t i = 0; i < images.count; ++i) {
    const char* image = images.bytes.data() + i * images.image_bytes();
    for (int64_t y = 0; y < images.height; y += size) {
      for (int64_t x = 0; x < images.width; x += size) {
        for (int64_t c = 0; c < images.channels; ++c) {
          int64_t sum = size * size / 2;
          for (int64_t k = 0; k < size * size; ++k) {
            const int64_t at =
                (y + k / size) * row + (x + k % size) * images.channels + c;
            sum += static_cast<unsigned char>(image[at]);
          }
          *out++ = static_cast<char>(sum / (size * size));
        }
      }
    }
  }
  return pooled;
}

}  // namespace tarn
