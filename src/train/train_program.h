// `tarn train` as a function: what the program tarn-train runs, and each of the
// processes that train one model together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/distributed/ranks.h"

namespace tarn::train {

/// Reads the arguments, trains, reports to standard error and prints the final
/// figures to standard output; of several ranks the first alone does so, and
/// the others write OUT/ranks/rank-N.log. Takes SIGINT and SIGTERM for an
/// orderly stop. make_ranks, make_sequence (empty: rows are whole): called once
/// errors are reported; the second gives the ranks that share the tokens of the
/// same rows. Returns the exit status: 0 done, 1 failure, 2 usage, 3 bad data
/// or model file, 128 + signal.
int TrainProgram(
    const std::vector<std::string>& arguments,
    const std::function<std::unique_ptr<Ranks>()>& make_ranks,
    const std::function<std::unique_ptr<Ranks>()>& make_sequence = {});

}  // namespace tarn::train
