// The grid of positions against its definition, and which states remain.
#include "runtime/session/snapshots.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn {
namespace {

// By definition: the gap at a distance is the largest 64 * 2^k that is at most
// a quarter of it, or 64.
int64_t GapByDefinition(int64_t distance) {
  int64_t gap = 64;
  while (2 * gap * 4 <= distance) gap *= 2;
  return gap;
}

bool OnGridByDefinition(int64_t position, int64_t head) {
  return position > 0 && position <= head &&
         position % GapByDefinition(head - position) == 0;
}

TEST(Snapshots, GridAndItsNextPosition) {
  for (const int64_t head : {1, 63, 64, 65, 255, 256, 257, 1000, 4097, 20000}) {
    int64_t next = head;
    for (int64_t p = head; p >= 0; --p) {
      ASSERT_EQ(OnGridByDefinition(p, head), Snapshots::OnGrid(p, head))
          << p << " of " << head;
      if (p < head) {
        ASSERT_EQ(next, Snapshots::NextOnGrid(p, head)) << p << " of " << head;
      }
      if (OnGridByDefinition(p, head)) next = p;
    }
  }
}

TEST(Snapshots, APositionOffTheGridStaysOff) {
  for (int64_t position = 1; position <= 2000; ++position) {
    bool on = true;
    for (int64_t head = position; head <= 9000; ++head) {
      const bool now = OnGridByDefinition(position, head);
      ASSERT_TRUE(on || !now) << position << " at head " << head;
      on = now;
    }
  }
}

TEST(Snapshots, GapsAreAQuarterOfTheDistance) {
  const int64_t head = 1000000;
  int64_t last = head, count = 0;
  for (int64_t p = head - 1; p >= 0; --p) {
    if (p > 0 && !Snapshots::OnGrid(p, head)) continue;
    // Going back to the position after p replays what is between.
    ASSERT_LE(last - p, std::max<int64_t>(64, (head - p) / 4 + 64)) << p;
    last = p;
    ++count;
  }
  EXPECT_LE(count, 64);
  EXPECT_GE(count, 20);
}

StateLayout LayoutOf(int64_t floats) {
  StateLayout layout{ModelConfig{}};
  layout.layers.clear();
  layout.branches.clear();
  layout.fixed_floats = floats;
  layout.token_floats = 0;
  layout.outputs = 4;
  return layout;
}

class SnapshotsOfStates : public ::testing::Test {
 protected:
  SequenceState At(int64_t position, bool logits = false) {
    SequenceState state(layout_);
    state.position = position;
    state.has_logits = logits;
    return state;
  }
  static std::vector<int64_t> Positions(const Snapshots& snapshots) {
    std::vector<int64_t> positions;
    for (const Snapshot& s : snapshots.all()) positions.push_back(s.position);
    return positions;
  }
  std::shared_ptr<const StateLayout> layout_ =
      std::make_shared<StateLayout>(LayoutOf(16));
};

TEST_F(SnapshotsOfStates, KeepsOnceAndPrefersLogits) {
  Snapshots snapshots({});
  snapshots.Keep(At(10));
  snapshots.Keep(At(5));
  const auto first = snapshots.all()[1].mark;
  snapshots.Keep(At(10));
  EXPECT_EQ(first, snapshots.all()[1].mark);
  snapshots.Keep(At(10, true));
  EXPECT_NE(first, snapshots.all()[1].mark);
  EXPECT_TRUE(snapshots.all()[1].has_logits());
  EXPECT_EQ((std::vector<int64_t>{5, 10}), Positions(snapshots));
  EXPECT_EQ(16 * 4 + 16 * 4 + 4 * 4, snapshots.bytes());
  EXPECT_EQ(nullptr, snapshots.Nearest(4));
  EXPECT_EQ(5, snapshots.Nearest(9)->position);
  EXPECT_EQ(10, snapshots.Nearest(99)->position);
  snapshots.DropAfter(9);
  EXPECT_EQ((std::vector<int64_t>{5}), Positions(snapshots));
  EXPECT_EQ(16 * 4, snapshots.bytes());
}

TEST_F(SnapshotsOfStates, ThinsToTheGridTheLastTokensAndTheBudget) {
  Snapshots snapshots({.every_token = 100});
  for (int64_t p = 1; p <= 1000; ++p) {
    snapshots.Keep(At(p));
    snapshots.Thin(p);
  }
  std::vector<int64_t> wanted;
  for (int64_t p = 1; p <= 1000; ++p) {
    if (p >= 900 || OnGridByDefinition(p, 1000)) wanted.push_back(p);
  }
  EXPECT_EQ(wanted, Positions(snapshots));

  Snapshots asked({});
  asked.Keep(At(77), true);
  for (const int64_t p : {78, 500}) {
    asked.Keep(At(p));
    asked.Thin(p);
  }
  asked.Thin(600);
  EXPECT_EQ((std::vector<int64_t>{77}), Positions(asked));

  Snapshots small({.max_bytes = 3 * 64, .every_token = 5});
  for (int64_t p = 1; p <= 9; ++p) {
    small.Keep(At(p));
    small.Thin(p);
  }
  EXPECT_EQ((std::vector<int64_t>{7, 8, 9}), Positions(small));
  EXPECT_EQ(3 * 64, small.bytes());
}

TEST_F(SnapshotsOfStates, GivesMemoryThatNobodyElseHas) {
  Snapshots snapshots({.every_token = 3});
  const auto keep = [&](Snapshots& to, int64_t position) {
    SequenceState state(layout_);
    state.position = position;
    to.Keep(state);
    to.Thin(position);
  };
  for (int64_t p = 1; p <= 4; ++p) keep(snapshots, p);
  EXPECT_EQ(0, snapshots.TakeFreed().size());
  keep(snapshots, 5);  // drops the first
  EXPECT_EQ(16, snapshots.TakeFreed().size());
  EXPECT_EQ(0, snapshots.TakeFreed().size());
  const Snapshots shared = snapshots;
  keep(snapshots, 6);
  EXPECT_EQ(0, snapshots.TakeFreed().size());
  snapshots.DropAfter(5);
  snapshots.ForgetFreed();
  EXPECT_EQ(0, snapshots.TakeFreed().size());

  Snapshots rare({});  // keeps no memory for states that it rarely makes
  keep(rare, 7);
  rare.Clear();
  EXPECT_EQ(0, rare.TakeFreed().size());
}

TEST(Snapshots, RefusesOptions) {
  EXPECT_THROW(Snapshots({.max_bytes = -1}), ArgumentError);
  EXPECT_THROW(Snapshots({.every_token = -1}), ArgumentError);
  EXPECT_THROW(Snapshots({.every_token = 1025}), ArgumentError);
}

}  // namespace
}  // namespace tarn
