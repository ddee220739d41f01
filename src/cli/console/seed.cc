#include "cli/console/seed.h"

#include <random>

namespace tarn::cli {

void DeclareSeed(ArgumentParser& parser, int64_t& seed) {
  parser.Add("--seed", seed, "0 or more; -1: random")
      .Whole(-1, INT64_MAX)
      .ShowDefault();
}

uint64_t ChooseSeed(int64_t seed) {
  if (seed >= 0) return static_cast<uint64_t>(seed);
  std::random_device device;
  const uint64_t bits = uint64_t{device()} << 32 | device();
  return bits >> 11;
}

}  // namespace tarn::cli
