// The registry of mixers: the rows of every build, and those that a program
// adds, in one way.
#include <algorithm>
#include <deque>
#include <mutex>
#include <string_view>

#include "config/fields.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/text.h"

namespace tarn {
namespace {

// Rows are only ever added, and a deque does not move them.
struct Registry {
  ForkHeldMutex turn;
  std::deque<MixerSpec> rows;
};

// As it is, with or without the built-in rows, which are added through it.
Registry& RawRegistry() {
  static Registry registry;
  return registry;
}

// Separators of the text of a pattern, and what joins parallel mixers.
constexpr std::string_view kSeparators = ",:+";

AttentionKind Add(const MixerSpec& spec, bool added) {
  if (spec.name == nullptr || spec.family == nullptr || !spec.weights) {
    throw ArgumentError("RegisterMixer: spec", "a name, a family and weights",
                        spec.name == nullptr ? "no name" : Quoted(spec.name));
  }
  if (std::string_view(spec.name).find_first_of(kSeparators) !=
      std::string_view::npos) {
    throw ArgumentError("RegisterMixer: spec.name",
                        StrCat("none of the characters ", kSeparators),
                        Quoted(spec.name));
  }
  if (spec.can.recurrent != (spec.state != nullptr)) {
    throw ArgumentError("RegisterMixer: spec.state",
                        spec.can.recurrent ? "the state of a recurrent mixer"
                                           : "none without a recurrent form",
                        spec.state != nullptr ? "one" : "none");
  }
  Registry& registry = RawRegistry();
  const std::lock_guard lock(registry.turn);
  for (const MixerSpec& row : registry.rows) {
    if (std::string_view(row.name) == spec.name) {
      throw ArgumentError("RegisterMixer: spec.name", "a unique name",
                          Quoted(spec.name));
    }
  }
  MixerSpec row = spec;
  AddOwnFields(row.family, row.keys, added);
  const auto is_family = [&](const char* section) {
    return std::string_view(section) == row.family;
  };
  if (std::any_of(row.keys.begin(), row.keys.end(),
                  [](const OwnKey& key) { return key.section.empty(); }) &&
      std::none_of(row.sections.begin(), row.sections.end(), is_family) &&
      std::none_of(row.optional_sections.begin(), row.optional_sections.end(),
                   is_family)) {
    row.sections.push_back(row.family);
  }
  registry.rows.push_back(std::move(row));
  return static_cast<AttentionKind>(registry.rows.size() - 1);
}

Registry& TheRegistry() {
  EnsureBuiltins();
  return RawRegistry();
}

std::optional<AttentionKind> Find(const Registry& registry,
                                  std::string_view name) {
  for (size_t i = 0; i < registry.rows.size(); ++i) {
    if (name == registry.rows[i].name) return static_cast<AttentionKind>(i);
  }
  return std::nullopt;
}

// The mixers of a name with '+' in it; none where one of them is unknown or
// there are too many.
std::vector<AttentionKind> BranchesOf(std::string_view name) {
  if (name.find('+') == name.npos) return {};
  std::vector<AttentionKind> branches;
  for (const std::string_view one : Split(name, '+')) {
    const auto kind = one.empty() || branches.size() == kMostBranches
                          ? std::nullopt
                          : FindMixer(one);
    if (!kind) return {};
    branches.push_back(*kind);
  }
  return branches;
}

}  // namespace

void EnsureBuiltins() {
  static const bool done = [] {
    std::vector<MixerSpec> rows = BuiltinMixers();
    std::stable_sort(rows.begin(), rows.end(),
                     [](const MixerSpec& a, const MixerSpec& b) {
                       return a.place < b.place;
                     });
    for (const MixerSpec& row : rows) Add(row, /*added=*/false);
    AddBuiltinFeedForwards();
    return true;
  }();
  (void)done;
}

AttentionKind RegisterMixer(const MixerSpec& spec) {
  EnsureBuiltins();
  return Add(spec, /*added=*/true);
}

bool IsMixer(AttentionKind kind) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  return static_cast<size_t>(kind) < registry.rows.size();
}

const MixerSpec& Spec(AttentionKind kind) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  const auto index = static_cast<size_t>(kind);
  if (index >= registry.rows.size()) {
    throw ArgumentError("attention", "a registered mixer",
                        StrCat("number ", index));
  }
  return registry.rows[index];
}

std::optional<AttentionKind> FindMixer(std::string_view name) {
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.turn);
    if (const auto found = Find(registry, name)) return found;
  }
  const std::vector<AttentionKind> branches = BranchesOf(name);
  if (branches.empty()) return std::nullopt;
  const MixerSpec spec = ParallelMixer(branches);
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  // Another thread may have come first.
  if (const auto found = Find(registry, name)) return found;
  registry.rows.push_back(spec);
  return static_cast<AttentionKind>(registry.rows.size() - 1);
}

std::string MixersWanted() {
  std::string known;
  for (const char* one : MixerNames()) {
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  return StrCat(known, ", or up to ", kMostBranches,
                " of them with '+' between");
}

AttentionKind MixerKind(std::string_view name) {
  if (const auto found = FindMixer(name)) return *found;
  RefuseKey("attention", "one of " + MixersWanted(), Quoted(name));
}

std::vector<const char*> MixerNames() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.turn);
  std::vector<const char*> names;
  for (const MixerSpec& row : registry.rows) {
    if (row.branches.empty()) names.push_back(row.name);
  }
  return names;
}

const char* Name(AttentionKind kind) {
  return kind == kDerivedMixer ? "derived" : Spec(kind).name;
}

}  // namespace tarn
