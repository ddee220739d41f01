#include "runtime/stack/position_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/positions/positions.h"

namespace tarn {
namespace {

ModelConfig ConfigOf(Positions positions, PositionCombine combine) {
  ModelConfig config;
  config.positions = positions;
  config.position_combine = combine;
  FinishConfig(config);
  return config;
}

void ExpectRow(const PositionRows& rows, const ModelConfig& config,
               int64_t position) {
  const int64_t width = rows.width();
  std::vector<float> got(static_cast<size_t>(width)), want(got.size());
  rows.Get(position, got.data());
  if (config.positions == Positions::kRotary) {
    const int64_t one =
        width / static_cast<int64_t>(1 + config.rotary_bases.size());
    std::vector<double> bases = config.rotary_bases;
    bases.insert(bases.begin(), config.rotary_base);
    for (size_t i = 0; i < bases.size(); ++i) {
      float* row = want.data() + static_cast<int64_t>(i) * one;
      RotaryRow(position, one, bases[i], row, row + one / 2);
    }
  } else {
    SinusoidalRow(position, width, want.data());
  }
  EXPECT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * 4))
      << position;
}

void Block(PositionRows& rows, const ModelConfig& config,
           const std::vector<int64_t>& positions, size_t filled) {
  const auto missing = rows.Claim(positions);
  EXPECT_EQ(filled, missing.size());
  for (const int64_t position : missing) rows.Fill(position);
  for (const int64_t position : positions) ExpectRow(rows, config, position);
}

TEST(PositionRowsTest, KeptOrComputedTheSameBits) {
  for (const ModelConfig& config :
       {ConfigOf(Positions::kSinusoidal, PositionCombine::kAdd),
        ConfigOf(Positions::kSinusoidal, PositionCombine::kConcat),
        ConfigOf(Positions::kRotary, PositionCombine::kAdd)}) {
    PositionRows rows(config);
    Block(rows, config, {0, 1, 2, 1000000}, 4);
    Block(rows, config, {1, 1, 1, 3}, 1);       // many sequences at one place
    Block(rows, config, {5, 261, 5 + 512}, 1);  // three share a place
    Block(rows, config, {261, 5}, 1);           // the first keeps the place
    Block(rows, config, {5}, 1);
    ExpectRow(rows, config, 77);  // never claimed
  }
}

TEST(PositionRowsTest, EachBaseOfALayerHasItsTable) {
  ModelConfig config;
  config.positions = Positions::kRotary;
  config.layers = LayersFromText(
      "full,full:own_rotary_base=50,full:own_rotary_base=7,"
      "full:own_rotary_base=50");
  FinishConfig(config);
  PositionRows rows(config);
  EXPECT_EQ(rows.width(), 3 * config.d_key);
  Block(rows, config, {0, 1, 100000}, 3);
  ExpectRow(rows, config, 77);
}

TEST(PositionRowsTest, WhatWasNotFilledIsClaimedAgain) {
  const ModelConfig config =
      ConfigOf(Positions::kSinusoidal, PositionCombine::kAdd);
  PositionRows rows(config);
  EXPECT_EQ(3u, rows.Claim(std::vector<int64_t>{4, 5, 6}).size());
  rows.Fill(4);
  rows.Unclaim();
  for (const int64_t position : {4, 5, 6}) ExpectRow(rows, config, position);
  Block(rows, config, {4, 5, 6}, 3);
}

TEST(PositionRowsTest, PositionsThatAreNotComputedHaveNoRows) {
  PositionRows rows(ConfigOf(Positions::kLearned, PositionCombine::kAdd));
  EXPECT_EQ(0, rows.width());
  EXPECT_TRUE(rows.Claim(std::vector<int64_t>{1, 2}).empty());
}

}  // namespace
}  // namespace tarn
