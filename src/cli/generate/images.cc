#include "cli/generate/images.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "core/file.h"
#include "data/images/image_files.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kIdxHeaderBytes = 20;  // magic and four sizes at most

struct Beginnings {
  std::string bytes;  // of `count` images, as far as they are given
  int64_t count = 0;
};

// The first flags.pixels of the chosen images, or flags.count times nothing
// but the first byte, which no model predicts.
Beginnings BeginningsOf(const ImageFlags& flags, const ImageShape& shape) {
  Beginnings found;
  if (flags.given.path.empty()) {
    found.bytes = static_cast<char>(flags.first);
    found.count = 1;
    return found;
  }
  const int64_t all = shape.height * shape.width;
  if (flags.pixels > all) {
    throw ExitError(kExitUsage,
                    StrCat("--pixels: want at most ", all,
                           ", the pixels of an image, got ", flags.pixels));
  }
  ImageChoice choice = flags.given;
  if (choice.index.empty()) choice.index = "0";
  const std::string images = ReadChosenImages(choice, shape);
  const int64_t upper = std::max<int64_t>(shape.height / 2, 1) * shape.width;
  const int64_t kept =
      (flags.pixels > 0 ? flags.pixels : upper) * shape.channels;
  found.count = static_cast<int64_t>(images.size()) / shape.bytes();
  for (int64_t i = 0; i < found.count; ++i) {
    found.bytes += images.substr(static_cast<size_t>(i * shape.bytes()),
                                 static_cast<size_t>(kept));
  }
  return found;
}

// Images of the file to write, at most what ReadImages takes from one: all of
// them are in memory until the file is whole.
int64_t ImagesWanted(int64_t beginnings, int64_t samples,
                     const ImageShape& shape, const char* flag) {
  const ImageBounds bounds;
  const int64_t most =
      std::min(bounds.max_images,
               (static_cast<int64_t>(bounds.max_bytes) - kIdxHeaderBytes) /
                   shape.bytes()) /
      std::max<int64_t>(beginnings, 1);
  if (samples > most) {
    throw ExitError(
        kExitUsage,
        StrCat(flag, ": want at most ", most, " images of ", shape.bytes(),
               " bytes", beginnings > 1 ? " for each given one" : "",
               " (what an IDX file may hold), got ", samples));
  }
  return beginnings * samples;
}

void Refuse(const CLI::App& app, const std::vector<const char*>& names,
            const char* why) {
  for (const char* name : names) {
    if (app.count(name) == 0) continue;
    throw ExitError(kExitUsage, StrCat(name, ": ", why));
  }
}

void PrintFigures(const Model& model, int64_t images, double seconds,
                  uint64_t seed, bool json) {
  const double each = images > 0 ? seconds / static_cast<double>(images) : 0;
  const double rate = seconds > 0 ? static_cast<double>(images) / seconds : 0;
  if (json) {
    nlohmann::ordered_json root;
    root["images"] = images;
    root["seconds"] = seconds;
    root["images_per_s"] = rate;
    root["state_bytes"] = model.state_bytes();
    root["state_bytes_per_token"] = model.state_bytes_per_token();
    root["seed"] = seed;
    Payload payload(stdout);
    payload.Write(root.dump() + "\n");
    payload.Flush();
    return;
  }
  std::fprintf(stderr,
               "images       %lld, %.2f s, %.4g images/s, %.4g s an image\n"
               "state        %lld bytes an image, %lld more a byte drawn\n"
               "seed         %llu\n",
               static_cast<long long>(images), seconds, rate, each,
               static_cast<long long>(model.state_bytes()),
               static_cast<long long>(model.state_bytes_per_token()),
               static_cast<unsigned long long>(seed));
}

}  // namespace

void DeclareImageFlags(CLI::App& app, ImageFlags& flags) {
  app.add_option("--count", flags.count, "image models: images to draw")
      ->check(WholeNumber(0, INT32_MAX))
      ->capture_default_str();
  app.add_option("--given", flags.given.path,
                 "image models: a file of images to complete");
  DeclareImageChoice(app, flags.given);
  app.add_option("--pixels", flags.pixels,
                 "image models: pixels given; 0: the upper half")
      ->check(WholeNumber(0, INT32_MAX))
      ->capture_default_str();
  app.add_option("--samples", flags.samples,
                 "image models: completions of each given image")
      ->check(WholeNumber(1, INT32_MAX))
      ->capture_default_str();
  app.add_option("--first", flags.first,
                 "image models: first byte of images from nothing")
      ->check(WholeNumber(0, 255))
      ->capture_default_str();
  app.add_option("--batch", flags.batch,
                 "image models: images drawn together; 0: automatic")
      ->check(WholeNumber(0, 65536))
      ->capture_default_str();
  app.add_option("--out", flags.out,
                 "image models: the IDX file to write; - is standard output");
}

int GenerateImages(const CLI::App& app, const OpenedModel& opened,
                   const ImageFlags& flags, double temperature, uint64_t seed,
                   bool json) {
  const bool complete = !flags.given.path.empty();
  if (complete) {
    Refuse(app, {"--count", "--first"}, "not an option together with --given");
  } else {
    Refuse(app, {"--index", "--pool", "--pixels", "--samples"},
           "an option of --given FILE");
  }
  if (flags.out.empty() || (json && flags.out == "-")) {
    throw ExitError(kExitUsage,
                    StrCat("--out: want an IDX file to write",
                           json ? " (--json takes standard output)" : "",
                           ", got ", flags.out.empty() ? "none" : "-"));
  }
  const ImageShape shape(opened.model.config());
  const Beginnings given = BeginningsOf(flags, shape);
  ImageOptions options;
  options.samples = complete ? flags.samples : flags.count;
  options.temperature = temperature;
  options.seed = seed;
  options.batch = flags.batch;
  const int64_t wanted = ImagesWanted(given.count, options.samples, shape,
                                      complete ? "--samples" : "--count");
  ImageSet images{wanted, shape.height, shape.width, shape.channels, {}, {}};
  images.bytes.resize(static_cast<size_t>(wanted * shape.bytes()));

  const Clock::time_point begin = Clock::now();
  const auto seconds = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  int64_t whole = 0;
  if (wanted > 0) {
    Progress progress("generate", static_cast<uint64_t>(wanted));
    const auto report = [&](int64_t done, int64_t total) {
      const double share =
          static_cast<double>(done) / static_cast<double>(total);
      const double drawn = share * static_cast<double>(wanted);
      progress.Update(
          static_cast<uint64_t>(drawn),
          StrCat(static_cast<int64_t>(drawn), " of ", wanted, " images, ",
                 ImageRate(static_cast<double>(wanted), share, seconds())));
      return PendingSignal() == 0;
    };
    whole = DrawImages(opened.model, Bytes(given.bytes), given.count, options,
                       reinterpret_cast<uint8_t*>(images.bytes.data()), report);
  }
  if (PendingSignal() != 0) return SignalExitCode(PendingSignal());
  const std::string text = ImagesToIdx(images);
  if (flags.out == "-") {
    Payload payload(stdout);
    payload.Write(text);
    payload.Flush();
  } else {
    WriteFileAtomically(flags.out, text);
  }
  PrintFigures(opened.model, whole, seconds(), seed, json);
  return kExitOk;
}

}  // namespace tarn::cli
