// Images as bytes, from files in their official formats: IDX (MNIST and its
// relatives) and the binary form of CIFAR-10.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// Images of one size. A value.
struct ImageSet {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  /// count x height x width x channels: image after image, row by row, the
  /// channels of a pixel side by side.
  std::string bytes;
  /// CIFAR-10: the class of each image, 0 to 9; otherwise empty.
  std::vector<uint8_t> labels;

  int64_t image_bytes() const { return height * width * channels; }
  /// Bytes of image i in [0, count).
  std::string_view image(int64_t i) const {
    return std::string_view(bytes).substr(i * image_bytes(), image_bytes());
  }
};

/// Bounds of what is read from one file.
struct ImageBounds {
  int64_t max_images = int64_t{1} << 24;
  int64_t max_side = int64_t{1} << 12;     // pixels
  uint64_t max_bytes = uint64_t{1} << 31;  // of the file, unpacked
};

/// Reads images, plain or packed with gzip or zstd:
///   IDX, magic 2051: big-endian count, height, width, then the bytes of
///     one-channel images; magic 2052: the same with a fourth size, 1 or 3
///     channels (what tarn writes for images with colours)
///   CIFAR-10 binary: records of 3,073 bytes, a label below 10 and the planes
///     red, green and blue of 32 x 32 pixels, which are interleaved here
/// The first four bytes decide which one. Throws FormatError naming the path,
/// what was wanted and what was given: another magic, a size of 0 or beyond the
/// bounds, fewer or more bytes than the sizes say, a label above 9. O(bytes)
/// time and memory.
ImageSet ReadImages(const std::string& path, const ImageBounds& bounds = {});

/// The set as the contents of an IDX file (magic 2051, or 2052 with three
/// channels) that ReadImages takes. Labels are not in it.
std::string ImagesToIdx(const ImageSet& images);

/// Makes every block of size x size pixels its mean, channel by channel, halves
/// rounded up. Throws ArgumentError unless size >= 1 divides height and width.
ImageSet PoolImages(const ImageSet& images, int64_t size);

}  // namespace tarn
