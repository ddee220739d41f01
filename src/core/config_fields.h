// The table behind ModelConfig: reading, writing, flags, help and ranges of a
// field all come from its one row. Private to config*.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/config.h"

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
  int (*get)(const ModelConfig&);
  void (*set)(ModelConfig&, int);
};

struct ConfigField {
  const char* name;
  const char* help;
  std::variant<IntegerField, RealField, BoolField, ChoiceField> kind;
};

/// Every field, in the order of config.json.
std::span<const ConfigField> ConfigFields();

/// What a field takes, for error messages: "an integer from 1 to 65536".
/// finished: whether derived sizes must be there already (0 not allowed).
std::string Wanted(const ConfigField& field, bool finished);
/// The field's value as JSON text, shortest form that reads back the same.
std::string ValueText(const ConfigField& field, const ModelConfig& config);
/// Is the value the config holds within the field's range?
bool InRange(const ConfigField& field, const ModelConfig& config);
/// Sets the field from text as on a command line; false when it does not
/// parse, with the config unchanged. Ranges are InRange's business.
bool SetFromText(const ConfigField& field, std::string_view text,
                 ModelConfig& config);

}  // namespace tarn
