#include "cli/console/image_file.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "cli/cli.h"
#include "core/text.h"
#include "data/images/image_files.h"

namespace tarn::cli {
namespace {

// A whole number of 0 or more, and nothing else.
std::optional<int64_t> WholeText(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

struct Range {
  int64_t first, last;
};

Range RangeOf(const std::string& index, int64_t count) {
  if (index.empty()) return {0, count - 1};
  const size_t dash = index.find('-');
  const auto first = WholeText(std::string_view(index).substr(0, dash));
  const auto last = dash == std::string::npos
                        ? first
                        : WholeText(std::string_view(index).substr(dash + 1));
  if (first && last && *first <= *last && *last < count) return {*first, *last};
  throw ExitError(kExitUsage, StrCat("--index: want I or I-J from 0 to ",
                                     count - 1, ", got ", Quoted(index)));
}

std::string ShapeOf(int64_t height, int64_t width, int64_t channels) {
  return StrCat(height, " x ", width, channels == 1 ? "" : " in colour");
}

std::string Left(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return StrCat(whole, " s");
  if (whole < 3600) return StrCat(whole / 60, " min ", whole % 60, " s");
  return StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

}  // namespace

void DeclareImageChoice(ArgumentParser& parser, ImageChoice& choice,
                        const std::string& whose) {
  parser.Add("--index", choice.index, whose + "image I of the file, or I-J");
  parser
      .Add("--pool", choice.pool,
           whose + "n x n pixels of the file become their mean")
      .Whole(1, 1024)
      .ShowDefault();
}

std::string ReadChosenImages(const ImageChoice& choice,
                             const ImageShape& shape) {
  ImageSet set = ReadImages(choice.path);
  const int64_t pool = choice.pool;
  const auto fits = [&](int64_t size) {
    return set.height == shape.height * size &&
           set.width == shape.width * size && set.channels == shape.channels;
  };
  if (!fits(pool)) {
    const int64_t other = set.height / shape.height;
    throw ExitError(
        kExitBadModel,
        StrCat(choice.path, ": want images of ",
               ShapeOf(shape.height * pool, shape.width * pool, shape.channels),
               pool == 1 ? "" : " for this --pool", ", got ",
               ShapeOf(set.height, set.width, set.channels),
               fits(other) ? StrCat(" (try --pool ", other, ")") : ""));
  }
  const Range range = RangeOf(choice.index, set.count);
  set.count = range.last - range.first + 1;
  set.bytes =
      set.bytes.substr(static_cast<size_t>(range.first * set.image_bytes()),
                       static_cast<size_t>(set.count * set.image_bytes()));
  return PoolImages(set, pool).bytes;
}

std::string ImageRate(double images, double share, double seconds) {
  if (share <= 0 || seconds <= 0) return "";
  char rate[32];
  std::snprintf(rate, sizeof(rate), "%.3g images/s", images * share / seconds);
  return StrCat(rate, ", ", Left(seconds * (1 - share) / share), " left");
}

}  // namespace tarn::cli
