#include "registry.h"

#include "core/error.h"

namespace tarn::bench {
namespace {

class Rotating final : public Case {
 public:
  explicit Rotating(std::vector<std::unique_ptr<Case>> sets)
      : sets_(std::move(sets)) {
    work_ = sets_.front()->work();
  }
  void Run(Executor& executor) override {
    sets_[next_]->Run(executor);
    next_ = (next_ + 1) % sets_.size();
  }

 private:
  std::vector<std::unique_ptr<Case>> sets_;
  size_t next_ = 0;
};

}  // namespace

const Registry& Entries() {
  static const Registry entries = [] {
    Registry all;
    RegisterLimits(all);
    RegisterKernels(all);
    return all;
  }();
  return entries;
}

std::unique_ptr<Case> MakeCase(std::string_view name, std::string_view params,
                               int threads) {
  for (const Entry& entry : Entries()) {
    if (name != entry.name) continue;
    std::vector<std::unique_ptr<Case>> sets;
    int64_t wanted = 1;
    do {
      Params parsed(params);
      wanted = parsed.Int("sets", 1);
      sets.push_back(entry.make(parsed, threads));
      parsed.CheckAllUsed();
    } while (static_cast<int64_t>(sets.size()) < wanted);
    if (wanted == 1) return std::move(sets.front());
    return std::make_unique<Rotating>(std::move(sets));
  }
  throw ArgumentError("bench: case", "a name that tarn_bench_case_name gives",
                      std::string(name));
}

}  // namespace tarn::bench
