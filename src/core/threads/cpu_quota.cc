#include "core/threads/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <thread>

#include "core/executor.h"
#include "core/file.h"

namespace tarn {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 16;  // these files hold a few lines

std::optional<double> Quota(std::istream& numbers) {
  double quota = 0, period = 0;
  // "max 100000" (version 2) stops at the word; version 1 says -1.
  if (!(numbers >> quota >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::string TextOf(const std::string& path) {
  auto file = ReadFile(path, kMaxFileBytes);
  return file.ok() ? std::move(file).value() : "";
}

std::optional<double> QuotaOfFolder(const std::string& folder, bool version2) {
  std::istringstream numbers(version2
                                 ? TextOf(folder + "/cpu.max")
                                 : TextOf(folder + "/cpu.cfs_quota_us") + " " +
                                       TextOf(folder + "/cpu.cfs_period_us"));
  return Quota(numbers);
}

bool HasCpuController(std::string_view list) {
  std::istringstream names{std::string(list)};
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

void TakeSmaller(std::optional<double>& best, std::optional<double> other) {
  if (other && (!best || *other < *best)) best = other;
}

// Every level counts: a parent's quota binds its children. Inside a container
// the path may name a folder only the host sees; its ancestors, down to the
// mount itself, are then the ones that exist.
void ReadParents(const std::string& mount, std::string path, bool version2,
                 std::optional<double>& best) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    TakeSmaller(best, QuotaOfFolder(mount + path, version2));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

int ProcessorsInAffinityMask() {
  // The kernel refuses a mask smaller than its own; grow until it fits.
  for (int processors = 1024; processors <= 1 << 20; processors *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(processors), [](cpu_set_t* set) { CPU_FREE(set); });
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      return CPU_COUNT_S(bytes, set.get());
    }
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::optional<double> CgroupCpuQuota(std::string_view self_cgroup,
                                     const std::string& root) {
  std::optional<double> best;
  std::istringstream lines{std::string(self_cgroup)};
  // Each line is "hierarchy:controllers:path"; version 2 is "0::path".
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      ReadParents(root, path, true, best);
      ReadParents(root + "/unified", path, true, best);
    } else if (HasCpuController(controllers)) {
      ReadParents(root + "/" + controllers, path, false, best);
      ReadParents(root + "/cpu", path, false, best);
    }
  }
  return best;
}

int DefaultThreads() {
  int threads = ProcessorsInAffinityMask();
  const auto quota =
      CgroupCpuQuota(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup");
  // Rounded down: with one thread too many the whole process is throttled for
  // the rest of each period, which costs more than a fraction of a core.
  if (quota && *quota < threads) threads = static_cast<int>(*quota);
  return std::max(threads, 1);
}

}  // namespace tarn
