// Images that a command reads and writes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/console/parse.h"
#include "runtime/generate/pixels.h"

namespace tarn::cli {

/// Which images of a file a command is about.
struct ImageChoice {
  std::string path;
  std::string index;  // "3" or "3-17", both ends included; empty: see Read
  int64_t pool = 1;   // n x n pixels become their mean
};

/// --index and --pool. `whose`: "image models: " for a command that takes other
/// models as well.
void DeclareImageChoice(ArgumentParser& parser, ImageChoice& choice,
                        const std::string& whose = "");

/// The chosen images as bytes, shape.bytes() each; without an index all of the
/// file. Throws ExitError: usage for an index the file does not have, bad data
/// for images of another size than the model's.
std::string ReadChosenImages(const ImageChoice& choice,
                             const ImageShape& shape);

/// The bytes of a std::string, for functions that take bytes.
inline std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// "3.1 images/s, 2 min 5 s left" for work that began `seconds` ago and has
/// done `share` (0 to 1) of `images`.
std::string ImageRate(double images, double share, double seconds);

}  // namespace tarn::cli
