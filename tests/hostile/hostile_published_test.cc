// Mutates the files of published model directories and gives them to the
// program: a command ends with exit code 0, or with 3 and one line, in bounded
// memory and processor time. A signal, a leak or a sanitizer's report fails the
// test.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "allocation_count.h"
#include "cli/cli.h"
#include "hostile/mutator.h"
#include "hostile/published_files.h"

namespace tarn {
namespace {

constexpr int kMutations = TARN_MUTATIONS;
// What a command may take from the C library, freed or not.
constexpr int64_t kMostBytes = 16 << 20;
// Beyond what the test itself holds. Sanitizers map terabytes for themselves
// and have a limit of their own (run_asan.cmake).
constexpr rlim_t kMostMemory = 512 << 20;
// Processor time of a command; it takes a hundredth of it.
constexpr rlim_t kMostSeconds = 30;
constexpr int kTooMuchMemory = 99;

struct Ended {
  int status = 0;
  std::string out, errors;
};

class HostilePublished : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("tarn_hostile_published_" + std::to_string(getpid()));
    std::filesystem::create_directories(root_);
    originals_ = MakePublishedFiles(TARN_PUBLISHED, root_ / "scratch");
    std::FILE* const messages = std::fopen((root_ / "in").c_str(), "wb");
    std::fputs("Hello\nab <|im_end|> 1\n", messages);
    std::fclose(messages);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Put(const PublishedFiles& files) {
    has_head_ = false;
    for (const auto& [name, contents] : files) {
      has_head_ |= contents.find("mtp.norm.weight") != std::string::npos;
    }
    const std::filesystem::path dir = root_ / "mutant";
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
    for (const auto& [name, contents] : files) {
      std::FILE* const file = std::fopen((dir / name).c_str(), "wb");
      EXPECT_NE(file, nullptr);
      EXPECT_EQ(std::fwrite(contents.data(), 1, contents.size(), file),
                contents.size());
      std::fclose(file);
    }
    return dir;
  }

  // The program in a process of its own, within the limits.
  Ended Run(std::vector<std::string> arguments) {
    const std::string out = root_ / "out", errors = root_ / "errors";
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (std::freopen((root_ / "in").c_str(), "rb", stdin) == nullptr ||
          std::freopen(out.c_str(), "wb", stdout) == nullptr ||
          std::freopen(errors.c_str(), "wb", stderr) == nullptr) {
        _exit(98);
      }
      std::exit(Limited(arguments));  // looks for leaks under ASan
    }
    Ended ended;
    EXPECT_EQ(waitpid(child, &ended.status, 0), child);
    ended.out = ReadFile(out, 1 << 20).Take();
    ended.errors = ReadFile(errors, 1 << 20).Take();
    return ended;
  }

  // What a user gives a downloaded directory to.
  std::vector<std::vector<std::string>> Commands(
      const std::string& dir, const std::string& prompt = "hello") {
    std::vector<std::vector<std::string>> commands = {
        {"verify", dir},
        {"info", dir},
        {"generate", dir, "--prompt", prompt, "--max-tokens", "4", "--threads",
         "1", "--seed", "1"},
        {"chat", dir, "--max-tokens", "4", "--threads", "1", "--seed", "1"},
        {"tokenize", dir, "--add-special"},
        {"import", dir, "--out", root_ / "imported", "--overwrite"}};
    if (has_head_) {
      commands.push_back({"generate", dir, "--prompt", prompt, "--max-tokens",
                          "9", "--threads", "1", "--speculate", "mtp"});
    }
    return commands;
  }

  // Whether the command succeeded; it may be refused as well.
  bool Check(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tarn");
    const Ended ended = Run(arguments);
    const std::string line = StrCat(arguments[1], ": status ", ended.status,
                                    "\n", ended.out, ended.errors);
    last_ = line;
    if (!WIFEXITED(ended.status)) {
      ADD_FAILURE() << line;
      return false;
    }
    const int code = WEXITSTATUS(ended.status);
    // --speculate mtp is a mistake where there is no head.
    const bool speculates = arguments.back() == "mtp";
    EXPECT_TRUE(code == 0 || code == 3 || (speculates && code == 2)) << line;
    if (code == 0) return true;
    // `tarn verify` lists faults on standard output.
    ExpectLines(arguments[1] == "verify" ? ended.out : ended.errors,
                arguments[1] == "verify" ? 40 : 1, line);
    return false;
  }

  void ExpectKeyOf(const std::string& config);

  std::filesystem::path root_;
  std::vector<PublishedFiles> originals_;
  std::string last_;       // what the last command wrote
  bool has_head_ = false;  // of the directory: an extra prediction head

 private:
  static int Limited(std::vector<std::string>& arguments) {
#ifndef __SANITIZE_ADDRESS__
    const rlimit memory = {kMostMemory, kMostMemory};
    setrlimit(RLIMIT_AS, &memory);
#endif
    const rlimit seconds = {kMostSeconds, kMostSeconds};
    setrlimit(RLIMIT_CPU, &seconds);
    const rlimit core = {0, 0};
    setrlimit(RLIMIT_CORE, &core);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int64_t before = testing::AllocatedBytes();
    const int code = cli::Main(static_cast<int>(arguments.size()), argv.data());
    const int64_t bytes = testing::AllocatedBytes() - before;
    if (bytes <= kMostBytes) return code;
    std::fprintf(stderr, "%lld bytes\n", static_cast<long long>(bytes));
    return kTooMuchMemory;
  }

  static void ExpectLines(const std::string& text, int64_t most,
                          const std::string& all) {
    const int64_t lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_TRUE(lines >= 1 && lines <= most) << all;
    EXPECT_LT(text.size(), static_cast<size_t>(most) * 2000) << all;
    for (const char c : text) {
      if (c == '\n' || (c >= 0x20 && c < 0x7F)) continue;
      ADD_FAILURE() << all;
      break;
    }
  }
};

TEST_F(HostilePublished, OriginalsWork) {
  for (const PublishedFiles& files : originals_) {
    const std::string dir = Put(files);
    for (const auto& arguments : Commands(dir)) {
      EXPECT_TRUE(Check(arguments)) << last_ << files.at("config.json");
    }
  }
}

TEST_F(HostilePublished, Mutations) {
  Mutator mutator(31);
  int refused = 0, working = 0;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    PublishedFiles files =
        originals_[static_cast<size_t>(i) % originals_.size()];
    auto target = files.find("config.json");
    if (mutator.Below(8) >= 3) {
      target = files.begin();
      std::advance(target, static_cast<int64_t>(mutator.Below(files.size())));
    }
    SCOPED_TRACE(::testing::Message()
                 << "mutation " << i << " of " << target->first);
    if (target->first.ends_with(".json") && mutator.Below(4) != 0) {
      mutator.MutateJson(target->second);
    } else {
      mutator.Mutate(target->second);
    }
    const std::string dir = Put(files);
    bool valid = true;
    const auto commands = Commands(dir);
    for (size_t c = 0; c < commands.size(); ++c) {
      // A process takes a while under a sanitizer: there each directory is
      // given to the first command and to one of the others.
      const size_t other = 1 + static_cast<size_t>(i) % (commands.size() - 1);
      if (kMutations > 1000 && c != 0 && c != other) continue;
      valid &= Check(commands[c]);
    }
    refused += !valid;
    working += valid;
  }
  RecordProperty("refused", refused);
  RecordProperty("working", working);
  // The mutations reach both ends.
  EXPECT_GT(refused, kMutations / 4);
  EXPECT_GT(working, kMutations / 20);
}

// What is refused in config.json is refused by a key of that file.
void HostilePublished::ExpectKeyOf(const std::string& config) {
  constexpr const char* kFile = "/config.json: ";
  const size_t at = last_.find(kFile), end = last_.find(": want ");
  if (at == std::string::npos || end == std::string::npos || end < at) return;
  std::string key =
      last_.substr(at + std::strlen(kFile), end - at - std::strlen(kFile));
  key = key.substr(key.rfind(' ') + 1);  // after those that it lies in
  EXPECT_NE(config.find(StrCat("\"", key, "\":")), std::string::npos) << last_;
}

// Every number of every config.json becomes one that asks for a lot.
TEST_F(HostilePublished, GiantNumbers) {
  static constexpr const char* kGiants[] = {"65537", "1000000", "1073741824",
                                            "9223372036854775807", "1e300"};
  size_t tried = 0;
  for (const PublishedFiles& original : originals_) {
    const std::string& text = original.at("config.json");
    constexpr const char* kDigits = "0123456789";
    for (size_t at = text.find_first_of(kDigits, 0); at != std::string::npos;) {
      const size_t end = text.find_first_not_of("0123456789.e+-", at);
      if (text[at - 1] == ':' || text[at - 1] == ',' || text[at - 1] == '[') {
        PublishedFiles files = original;
        const char* const giant = kGiants[tried++ % std::size(kGiants)];
        files["config.json"].replace(at, end - at, giant);
        SCOPED_TRACE(files.at("config.json"));
        const std::string dir = Put(files);
        if (!Check({"verify", dir})) ExpectKeyOf(files.at("config.json"));
        Check({"info", dir});
      }
      at = text.find_first_of(kDigits, end);
    }
  }
  EXPECT_GT(tried, 200u);
}

TEST_F(HostilePublished, FilesThatAreNoFiles) {
  for (size_t i = 0; i < 2; ++i) {
    for (const auto& [name, contents] : originals_[i]) {
      SCOPED_TRACE(name);
      for (const char* become : {"nothing", "a folder", "/dev/zero",
                                 "/proc/self/environ", "a pipe"}) {
        SCOPED_TRACE(become);
        const std::string path = Put(originals_[i]) + "/" + name;
        std::filesystem::remove(path);
        if (become[0] == '/') std::filesystem::create_symlink(become, path);
        if (become[2] == 'f') std::filesystem::create_directory(path);
        if (become[2] == 'p') {
          ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
        }
        // Without a tokenizer texts are ids.
        const bool ids = become[0] == 'n' && name == "tokenizer.json";
        for (const auto& arguments :
             Commands(root_ / "mutant", ids ? "1 2" : "hello")) {
          Check(arguments);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn
