// The table behind ModelConfig: reading, writing, flags, help and ranges of a
// field all come from its one row. Private to config*.cc,
// with the steps of FinishConfig that live in files of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "config/model_config.h"

namespace tarn {

struct IntegerField {
  int64_t ModelConfig::*member;
  int64_t min, max;
  bool derived = false;  // 0 stands for "FinishConfig works it out"
};
struct RealField {
  double ModelConfig::*member;
  double min, max;  // both inclusive
};
struct BoolField {
  bool ModelConfig::*member;
};
struct ChoiceField {
  std::span<const char* const> words;  // index = value of the enum
  bool derived;                        // -1 likewise
  int (*get)(const ModelConfig&);
  void (*set)(ModelConfig&, int);
};

struct ConfigField {
  const char* name;
  const char* help;
  std::variant<IntegerField, RealField, BoolField, ChoiceField> kind;
  int since = 1;  // the first format version that has the key
};

/// Every field, in the order of config.json.
std::span<const ConfigField> ConfigFields();

/// What a field takes, for error messages: "an integer from 1 to 65536".
/// finished: whether derived sizes must be there already (0 not allowed).
std::string Wanted(const ConfigField& field, bool finished);
/// The field's value as JSON text, shortest form that reads back the same.
std::string ValueText(const ConfigField& field, const ModelConfig& config);
/// config.json of a finished config with the keys of a version only.
std::string FieldsText(const ModelConfig& finished, int version);
/// The row of a key, or null.
const ConfigField* FindField(std::string_view key);
/// Is the value the config holds within the field's range?
bool InRange(const ConfigField& field, const ModelConfig& config);
/// Sets the field from text as on a command line; false when it does not
/// parse, with the config unchanged. Ranges are InRange's business.
bool SetFromText(const ConfigField& field, std::string_view text,
                 ModelConfig& config);

/// Throws ArgumentError naming the key.
[[noreturn]] void RefuseKey(const char* key, const std::string& wanted,
                            const std::string& given);
/// Ranges must hold and sizes be derived for both. Combinations of keys that
/// make no model (config_check.cc), and the bounds on the totals, whose
/// products cannot overflow then (config_weights.cc).
void CheckCombinations(const ModelConfig& config);
void CheckTotals(const ModelConfig& config);

}  // namespace tarn
