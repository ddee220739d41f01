#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace tarn {
namespace {

// Constants of Salmon et al. 2011, section 4: multipliers chosen for their
// avalanche, Weyl increments from the golden ratio and sqrt(3) - 1.
constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

constexpr double kTwoToMinus53 = 0x1p-53;

uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

uint64_t Join(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream,
                               uint64_t counter) {
  std::array<uint32_t, 4> x = {Low(counter), High(counter), Low(stream),
                               High(stream)};
  uint32_t key0 = Low(seed), key1 = High(seed);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * x[0];
    const uint64_t product1 = kMultiplier1 * x[2];
    x = {High(product1) ^ x[1] ^ key0, Low(product1),
         High(product0) ^ x[3] ^ key1, Low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

uint64_t Rng::Next() {
  const auto words = Philox(seed_, stream_, counter_++);
  return Join(words[0], words[1]);
}

double Rng::Uniform() {
  return static_cast<double>(Next() >> 11) * kTwoToMinus53;
}

uint64_t Rng::Below(uint64_t bound) {
  // Lemire 2019, "Fast random integer generation in an interval": the high half
  // of bits * bound, redrawn for the few low halves that would come up once
  // more often than the others.
  const uint64_t unfair = (0 - bound) % bound;
  for (;;) {
    const auto product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= unfair) {
      return static_cast<uint64_t>(product >> 64);
    }
  }
}

double Rng::Normal() {
  const auto words = Philox(seed_, stream_, counter_++);
  // The radius' uniform is in (0, 1], so that its logarithm is finite.
  const double radius_uniform =
      static_cast<double>((Join(words[0], words[1]) >> 11) + 1) * kTwoToMinus53;
  const double angle_uniform =
      static_cast<double>(Join(words[2], words[3]) >> 11) * kTwoToMinus53;
  return std::sqrt(-2.0 * std::log(radius_uniform)) *
         std::cos(2.0 * std::numbers::pi * angle_uniform);
}

}  // namespace tarn
