// `tarn draw`: images drawn pixel by pixel with an image model, from nothing or
// by completing given images.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/console/image_file.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/seed.h"
#include "cli/console/signals.h"
#include "core/file.h"
#include "data/images/image_files.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kIdxHeaderBytes = 20;  // magic and four sizes at most

struct DrawFlags {
  std::string dir, out;
  ModelFlags model;
  int64_t count = 1;
  ImageChoice given;
  int64_t pixels = 0;  // 0: the upper half
  int64_t samples = 1;
  int64_t first = 0;
  int64_t batch = 0;
  double temperature = 1;  // the trained model's own; for text it is a choice
  int64_t seed = -1;
  bool json = false;
};

struct Beginnings {
  std::string bytes;  // of `count` images, as far as they are given
  int64_t count = 0;
};

// The first flags.pixels of the chosen images, or flags.count times nothing
// but the first byte, which no model predicts.
Beginnings BeginningsOf(const DrawFlags& flags, const ImageShape& shape) {
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

void Refuse(const ArgumentParser& parser, const std::vector<const char*>& names,
            const char* why) {
  for (const char* name : names) {
    if (!parser.Has(name)) continue;
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

constexpr char kDrawFooter[] =
    "Draws --count new images, or --samples completions of each image of\n"
    "--given FILE, whose first --pixels pixels stay unchanged. The IDX file "
    "--out\n"
    "is written whole or not at all. Statistics go to stderr. The same seed "
    "gives\n"
    "the same images with any --batch and on any number of threads.\n\n"
    "Examples:\n"
    "  tarn draw models/digits --count 64 --out digits.idx\n"
    "  tarn draw models/digits --given t10k-images-idx3-ubyte.gz --index 0-9\n"
    "      --samples 8 --out completed.idx\n"
    "  tarn draw models/digits --temperature 0.8 --seed 1 --out - > one.idx\n";

void Declare(ArgumentParser& parser, DrawFlags& flags) {
  parser.Add("DIR", flags.dir, "directory of an image model").Required();
  parser.Add("--count", flags.count, "new images to draw")
      .Whole(0, INT32_MAX)
      .ShowDefault();
  parser.Add("--given", flags.given.path, "a file of images to complete");
  DeclareImageChoice(parser, flags.given);
  parser.Add("--pixels", flags.pixels, "pixels given; 0: the upper half")
      .Whole(0, INT32_MAX)
      .ShowDefault();
  parser.Add("--samples", flags.samples, "completions of each given image")
      .Whole(1, INT32_MAX)
      .ShowDefault();
  parser.Add("--first", flags.first, "first byte of new images")
      .Whole(0, 255)
      .ShowDefault();
  parser.Add("--batch", flags.batch, "images drawn at a time; 0: automatic")
      .Whole(0, 65536)
      .ShowDefault();
  parser
      .Add("--temperature", flags.temperature,
           "1: the model's distribution; 0: the mean of its likeliest "
           "component")
      .Range(0.0, 100.0)
      .ShowDefault();
  DeclareSeed(parser, flags.seed);
  parser.Add("--out", flags.out, "the IDX file to write; - is standard output")
      .Required();
  DeclareModelFlags(parser, flags.model, flags.json);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kDrawFooter);
}

// Refuses options that mean nothing together, before any work.
void CheckUsage(const ArgumentParser& parser, const DrawFlags& flags) {
  if (!flags.given.path.empty()) {
    Refuse(parser, {"--count", "--first"},
           "not an option together with --given");
  } else {
    Refuse(parser, {"--index", "--pool", "--pixels", "--samples"},
           "an option of --given FILE");
  }
  if (flags.out.empty() || (flags.json && flags.out == "-")) {
    throw ExitError(kExitUsage,
                    StrCat("--out: want an IDX file to write",
                           flags.json ? " (--json takes standard output)" : "",
                           ", got ", flags.out.empty() ? "none" : "-"));
  }
}

int DrawImages(const LoadedModel& opened, const DrawFlags& flags) {
  const bool complete = !flags.given.path.empty();
  const ImageShape shape(opened.model.config());
  const Beginnings given = BeginningsOf(flags, shape);
  ImageOptions options;
  options.samples = complete ? flags.samples : flags.count;
  options.temperature = flags.temperature;
  options.seed = ChooseSeed(flags.seed);
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
    Progress progress("draw", static_cast<uint64_t>(wanted));
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
    whole = tarn::DrawImages(
        opened.model, Bytes(given.bytes), given.count, options,
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
  PrintFigures(opened.model, whole, seconds(), options.seed, flags.json);
  return kExitOk;
}

}  // namespace

int Draw(int argc, char** argv) {
  DrawFlags flags;
  ArgumentParser parser("Draws images with an image model, pixel by pixel.",
                        "tarn draw");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  CheckUsage(parser, flags);
  const LoadedModel opened = OpenModelPath(flags.dir, flags.model.Options());
  if (opened.model.config().task != Task::kImage) {
    throw ExitError(kExitBadModel,
                    StrCat(flags.dir, ": want an image model, got one of task ",
                           Name(opened.model.config().task),
                           " (see `tarn generate` and `tarn classify`)"));
  }
  return DrawImages(opened, flags);
}

}  // namespace tarn::cli
