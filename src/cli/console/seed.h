// --seed, of every subcommand that draws at random.
#pragma once

#include <cstdint>

#include "cli/console/parse.h"

namespace tarn::cli {

/// Declares --seed: 0 or more, or -1 for a random one.
void DeclareSeed(ArgumentParser& parser, int64_t& seed);

/// The seed as given; a random one of 53 bits for -1, exact in readers of JSON
/// that use doubles.
uint64_t ChooseSeed(int64_t seed);

}  // namespace tarn::cli
