// Keys of config.json that belong to one part of a model, as a mixer: the part
// registers them in its own section, and a configuration holds those that are
// not at their defaults, by name. config.json, flags, help and the tables of
// other languages treat them as they treat members of ModelConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace tarn {

struct ModelConfig;

/// What a key takes, both ends inclusive, and its value where it is not given.
struct IntegerKey {
  int64_t min, max, value;
};
struct RealKey {
  double min, max, value;
};
struct FlagKey {
  bool value = false;
};
/// One of some words; a configuration holds its index, which may be an enum's.
struct WordKey {
  std::vector<std::string> words;
  int64_t value = 0;
};

/// The largest double below 1: the end of a RealKey for fractions.
inline constexpr double kBelowOne = 1.0 - 0x1p-53;

struct OwnKey {
  std::string name;  // in flags, patterns and flat JSON: a unique name
  std::string help;
  std::variant<RealKey, IntegerKey, FlagKey, WordKey> type;
  std::string key = {};      // in its section; empty: name
  std::string section = {};  // empty: the family of the mixer that has it
  /// Another key that comes right before or right after it in lists of keys;
  /// keys with the same neighbour come in the order of registration. Neither:
  /// at the end.
  std::string after = {}, before = {};
  /// Refused, not reset to its default, where no layer reads it.
  bool strict = false;
  /// Acts in training only, so that a run may change it on a model it is given.
  bool training = false;
};

/// The value of an own key: a number where it is real, else an integer (a flag
/// is 0 or 1, a word its index).
using OwnValue = std::variant<int64_t, double>;

OwnValue DefaultOf(const OwnKey& key);
/// What the key takes, for error messages: "an integer from 1 to 65536".
std::string WantedBy(const OwnKey& key);
bool InRange(const OwnKey& key, const OwnValue& value);
/// The value as JSON text, and from text as on a command line, whatever the
/// range; nothing where the text is none of the key's type.
std::string TextOf(const OwnKey& key, const OwnValue& value);
std::optional<OwnValue> ValueFrom(const OwnKey& key, std::string_view text);

/// The value that a configuration has for a registered key, and the same set.
/// Ranges are checked by FinishConfig. Throw ArgumentError for a name that no
/// part of a model registered.
OwnValue OwnValueOf(const ModelConfig& config, std::string_view name);
void SetOwnValue(ModelConfig& config, std::string_view name, OwnValue value);

/// The same as the type the key has: a number, a bool or an enum of its words.
template <typename T>
T KeyOf(const ModelConfig& config, std::string_view name) {
  return std::visit([](auto value) { return static_cast<T>(value); },
                    OwnValueOf(config, name));
}
template <typename T>
void SetKey(ModelConfig& config, std::string_view name, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    SetOwnValue(config, name, static_cast<double>(value));
  } else {
    SetOwnValue(config, name, static_cast<int64_t>(value));
  }
}

/// A real number as the shortest text that reads back the same and looks real.
std::string RealText(double value);

}  // namespace tarn
