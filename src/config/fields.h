// The table of ModelConfig's fields: reading, writing, flags, help and ranges
// of a field all come from its one row. Private to this folder,
// with the steps of FinishConfig that live in separate files.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/mixer_spec.h"
#include "config/model_config.h"

namespace tarn {

/// The format of config.json.
inline constexpr int kFormatVersion = 4;

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
  std::span<const char* const> words;  // index = value of the enum; empty: the
                                       // names and numbers of mixers
  bool derived;                        // -1 is FinishConfig's to work out
  int (*get)(const ModelConfig&);
  void (*set)(ModelConfig&, int);
  bool cross = false;  // of the mixers, those that read a memory
  // In place of words: the names of another registry, numbered from 0.
  std::vector<const char*> (*names)() = nullptr;
};

// A key that a part of a model registered: in ModelConfig::own where not at its
// default.
struct OwnField {
  const OwnKey* key;

  OwnValue Get(const ModelConfig& config) const;
  void Set(ModelConfig& config, OwnValue value) const;
};

struct ConfigField {
  const char* name;
  const char* help;
  std::variant<IntegerField, RealField, BoolField, ChoiceField, OwnField> kind;
  const char* section;               // of config.json
  const char* short_name = nullptr;  // the key there; null: name
  // Registered by a program, not by a part of every build: models that do not
  // read it know nothing of it.
  bool added = false;

  bool own() const { return std::holds_alternative<OwnField>(kind); }
  const char* key() const { return short_name != nullptr ? short_name : name; }
};

/// The keys of every model, in the order of flat JSON (fields.cc).
std::span<const ConfigField> CoreFields();
/// Those and the registered ones, in that order. Rows stay where they are when
/// more come.
const std::list<ConfigField>& ConfigFields();
/// Adds keys, each under its section or else `section`; none of these sections
/// may exist. added: by a program. Throws ArgumentError for a name that is
/// taken or a range without its default, with nothing added. Called by
/// registries, which have their turn, while they are made as well.
void AddOwnFields(const char* section, const std::vector<OwnKey>& keys,
                  bool added);
/// Registers the parts of every build; the registries do so at their first use,
/// and so does this table.
void EnsureBuiltins();
/// The feed-forward parts' share of that.
void AddBuiltinFeedForwards();
/// Whether a configuration has another value than the default for some
/// registered key of a section.
bool GivesKeysOf(const ModelConfig& config, std::string_view section);
/// Sections of config.json, in the order of the file.
std::vector<std::string_view> SectionNames();

/// The words of a choice, and the value of the enum that a word stands for; -1
/// for another text.
std::vector<const char*> Words(const ChoiceField& field);
int ValueOf(const ChoiceField& field, std::string_view word);
/// The word of a value of the enum; "" for one without a word.
const char* WordOf(const ChoiceField& field, int value);

/// What a field takes, for error messages: "an integer from 1 to 65536".
/// finished: whether derived sizes must be there already (0 not allowed).
std::string Wanted(const ConfigField& field, bool finished);
/// The value of a key that is not given, as on a command line; empty where
/// other keys decide it.
std::string DefaultText(const ConfigField& field);
/// What help calls its value: "N", "X", "WORD", "false|true".
const char* MetavarOf(const ConfigField& field);
/// The field's value as JSON text, shortest form that reads back the same.
std::string ValueText(const ConfigField& field, const ModelConfig& config);
/// All keys of a finished config side by side: what identities hash and Python
/// reads. unread: whether keys that no part of the model reads are there.
std::string FieldsText(const ModelConfig& finished, bool unread = true);
/// Whether some part of a finished model reads the key: where its section is
/// read, by the mixers' own account (MixerSpec::reads), not under a pattern's
/// other value.
bool ReadsField(const ModelConfig& finished, const ConfigField& field);
/// The row of a key, or null.
const ConfigField* FindField(std::string_view key);
/// Gives a field the value it has in another configuration.
void CopyField(const ConfigField& field, const ModelConfig& from,
               ModelConfig& to);
/// Is the value the config holds within the field's range?
bool InRange(const ConfigField& field, const ModelConfig& config);
/// Sets the field from text as on a command line; false when it does not parse,
/// with the config unchanged. Ranges are checked by InRange.
bool SetFromText(const ConfigField& field, std::string_view text,
                 ModelConfig& config);

/// layers.cc: the pattern in its normal form: options that differ from the
/// model's own, in the order of the table; none where all layers are alike.
void NormaliseLayers(ModelConfig& config);
/// Whether the mixer of a layer's view rotates queries and keys where positions
/// are rotary.
bool Rotates(const ModelConfig& view);
/// What ModelConfig::first_passing is.
int64_t FirstPassing(const ModelConfig& config);
/// What the mixers of a configuration derive (MixerSpec::derive).
void DeriveMixers(ModelConfig& config);
/// Whether the registry has a row of this number.
bool IsMixer(AttentionKind kind);
/// The names of mixers, for error messages.
std::string MixersWanted();
/// The different mixers of a model's layers, those of cross attention included.
std::vector<AttentionKind> AllMixersOf(const ModelConfig& config);

/// Throws ArgumentError naming the key.
[[noreturn]] void RefuseKey(const char* key, const std::string& wanted,
                            const std::string& given);
/// CheckCombinations and CheckTotals need ranges that hold and sizes that are
/// derived. They refuse combinations of keys that make no model (check.cc), and
/// totals beyond their bounds, whose products cannot overflow then
/// (weight_shapes.cc).
void CheckCombinations(const ModelConfig& config);
/// Refuses keys that are given though no layer reads them, where they are
/// strict. Needs the task derived.
void CheckStrictKeys(const ModelConfig& config);
void CheckTotals(const ModelConfig& config);

/// The most parallel mixers of a layer. Rows of parallel mixers stay in the
/// registry for the life of the program, and files may ask for each of them.
inline constexpr size_t kMostBranches = 3;

/// "mamba2+full".
std::string ParallelName(const std::vector<AttentionKind>& branches);

/// The row of a parallel mixer. Its tensors and its state are theirs:
/// tensors under "branches.<number>.", tensors of the state under "<number>.".
MixerSpec ParallelMixer(const std::vector<AttentionKind>& branches);

}  // namespace tarn
