// Ranks of one of torch's process groups. The group is made in Python, where
// torch makes groups; here it is found by its name.
#pragma once

#include <memory>
#include <string>

#include "train/distributed/ranks.h"

namespace tarn::train {

/// name: what the group is registered under in this process
/// (`torch.distributed.group.WORLD.group_name`). Throws ArgumentError where
/// there is no such group.
std::unique_ptr<Ranks> RanksOfGroup(const std::string& name);

}  // namespace tarn::train
