#include "cli/eval/images.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/console/output.h"
#include "cli/console/signals.h"

namespace tarn::cli {
namespace {

struct MeanAndError {
  double mean = 0;
  double standard_error = 0;  // of the mean; 0 for fewer than two values
};

MeanAndError MeanOf(const std::vector<double>& values) {
  MeanAndError found;
  const double count = static_cast<double>(values.size());
  if (values.empty()) return found;
  for (const double x : values) found.mean += x / count;
  if (values.size() < 2) return found;
  double squares = 0;
  for (const double x : values) squares += (x - found.mean) * (x - found.mean);
  found.standard_error = std::sqrt(squares / (count - 1) / count);
  return found;
}

}  // namespace

int EvalImages(const LoadedModel& opened, const EvalImageFlags& flags) {
  const ImageShape shape(opened.model.config());
  const int64_t all = shape.height * shape.width;
  const int64_t from = std::max<int64_t>(flags.pixels * shape.channels, 1);
  if (from >= shape.bytes()) {
    throw ExitError(kExitUsage,
                    StrCat("--pixels: want fewer than the ", all,
                           " pixels of an image, got ", flags.pixels));
  }
  const std::string images = ReadChosenImages(flags.images, shape);
  const int64_t count = static_cast<int64_t>(images.size()) / shape.bytes();
  std::vector<double> nats(static_cast<size_t>(count));
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  };
  int64_t scored = 0;
  {
    Progress progress("eval", static_cast<uint64_t>(count));
    scored = ScoreImages(
        opened.model, Bytes(images), from, nats.data(),
        [&](int64_t done, int64_t total) {
          const double share =
              static_cast<double>(done) / static_cast<double>(total);
          progress.Update(
              static_cast<uint64_t>(share * static_cast<double>(count)),
              ImageRate(static_cast<double>(count), share, seconds()));
          return PendingSignal() == 0;
        });
  }
  if (scored == 0 && PendingSignal() != 0) {  // within the first image
    return SignalExitCode(PendingSignal());
  }
  nats.resize(static_cast<size_t>(scored));
  const double dims = static_cast<double>(shape.bytes() - from);
  for (double& x : nats) x /= dims * std::log(2.0);
  const MeanAndError bits = MeanOf(nats);
  nlohmann::ordered_json root;
  root["images"] = scored;
  root["bytes_scored"] = scored * (shape.bytes() - from);
  root["bits_per_dim"] = bits.mean;
  root["standard_error"] = bits.standard_error;
  root["seconds"] = seconds();
  if (flags.per_image) root["bits_per_dim_of_images"] = nats;  // bits by now
  Payload payload(stdout);
  if (flags.json) {
    payload.Write(root.dump() + "\n");
  } else {
    for (const auto& [key, value] : root.items()) {
      payload.Write(StrCat(key, " ", value.dump(), "\n"));
    }
  }
  payload.Flush();
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
