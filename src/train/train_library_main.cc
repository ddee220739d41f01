// libtarn_train: the trainer in a process where Python has made torch's process
// group. python/tarn/train.py loads it.
#include <string>
#include <vector>

#include "train/distributed/group.h"
#include "train/train_program.h"

/// Does what tarn-train does with these arguments, as one rank of the group
/// that is registered under this name; a null name: by itself. sequence: the
/// name of the group of consecutive ranks that share the tokens of the same
/// rows; null: none. Returns its exit status. Blocks; called once in a process.
extern "C" __attribute__((visibility("default"))) int tarn_train(
    int argc, const char* const* argv, const char* group,
    const char* sequence) {
  const auto ranks_of = [](const char* name) {
    return name == nullptr ? tarn::train::OneRank()
                           : tarn::train::RanksOfGroup(name);
  };
  std::function<std::unique_ptr<tarn::train::Ranks>()> make_sequence;
  if (sequence != nullptr) make_sequence = [&] { return ranks_of(sequence); };
  return tarn::train::TrainProgram(
      {argv, argv + argc}, [&] { return ranks_of(group); }, make_sequence);
}
