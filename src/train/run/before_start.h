// What a command line is checked for before libtorch is loaded, which takes a
// third of a second a process, and before other processes are started.
#pragma once

#include "train/options/options.h"

namespace tarn::train {

/// How many processes train, and into how many pieces they cut each row.
struct RanksWanted {
  int64_t ranks = 1;
  int64_t pieces = 1;
};

/// Reads --ranks and --sequence-parallel, and checks --backend and --timeout.
/// Throws ArgumentError for a value outside the range that --help prints, and
/// for pieces that do not divide the ranks.
RanksWanted ReadRanks(const Given& given);

/// The checks of PlanRun that need neither torch nor the data: options, sizes,
/// and that inputs can be opened. A run that resumes from a checkpoint is left
/// to PlanRun. Writes nothing. Throws as PlanRun does.
void CheckBeforeStart(const Given& given);

}  // namespace tarn::train
