// How many processors a container lets this process use.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tarn {

/// Processors' worth of time that Linux control groups grant, the smallest
/// quota from the process's group up to the root; empty when none is set.
/// self_cgroup: text of /proc/self/cgroup; root: where the control groups are
/// mounted ("/sys/fs/cgroup"). Knows version 2 (cpu.max) and version 1
/// (cpu.cfs_quota_us over cpu.cfs_period_us). Files that are missing or
/// unreadable count as no limit. Thread-safe.
std::optional<double> CgroupCpuQuota(std::string_view self_cgroup,
                                     const std::string& root);

}  // namespace tarn
