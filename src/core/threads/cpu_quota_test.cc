#include "core/threads/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "core/executor.h"
#include "core/file.h"
#include "core/test_util.h"

namespace tarn {
namespace {

// A copy of /sys/fs/cgroup with just the files a case needs.
class CpuQuota : public ::testing::Test {
 protected:
  void Put(const std::string& file, const std::string& text) {
    const std::string path = folder_ / file;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    WriteFileAtomically(path, text);
  }
  std::optional<double> Quota(const std::string& self) {
    return CgroupCpuQuota(self, folder_.path());
  }
  TemporaryFolder folder_;
};

TEST_F(CpuQuota, NothingMountedIsNoLimit) {
  EXPECT_EQ(Quota("0::/\n"), std::nullopt);
  EXPECT_EQ(Quota(""), std::nullopt);
  EXPECT_EQ(Quota("nonsense\n::\n3:cpu"), std::nullopt);
}

TEST_F(CpuQuota, VersionTwoTakesTheSmallestOnTheWayUp) {
  Put("cpu.max", "800000 100000\n");
  Put("pod/cpu.max", "150000 100000\n");
  Put("pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota("0::/pod/box\n"), 1.5);
  EXPECT_EQ(Quota("0::/pod\n"), 1.5);
  EXPECT_EQ(Quota("0::/\n"), 8.0);
  // Inside a container the host's path does not exist: the root still counts.
  EXPECT_EQ(Quota("0::/kubepods/unknown\n"), 8.0);
}

TEST_F(CpuQuota, VersionOneReadsTheCpuController) {
  Put("cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
  Put("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  Put("cpu,cpuacct/free/cpu.cfs_quota_us", "-1\n");
  Put("cpu,cpuacct/free/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota("11:memory:/other\n4:cpu,cpuacct:/box\n"), 2.5);
  EXPECT_EQ(Quota("4:cpu,cpuacct:/free\n"), std::nullopt);
  EXPECT_EQ(Quota("4:cpuset:/box\n"), std::nullopt);
}

TEST_F(CpuQuota, NonsenseIsNoLimit) {
  Put("cpu.max", "12");
  EXPECT_EQ(Quota("0::/"), std::nullopt);
  Put("cpu.max", "0 0");
  EXPECT_EQ(Quota("0::/"), std::nullopt);
  Put("cpu.max", "abc def");
  EXPECT_EQ(Quota("0::/"), std::nullopt);
}

TEST(DefaultThreadsTest, IsAtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(),
            static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace tarn
