// The one table of the options of sampling: the flags of the command line, the
// arguments of Python, the fields of requests and the page of the documents
// come from it. The seed is no row: who draws chooses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// An integer, a real number or a list of texts: the same alternatives, in the
/// same order, as SamplerOption::member.
using SamplerValue = std::variant<int64_t, double, std::vector<std::string>>;

/// How an option that is a list is read and set.
struct SamplerWords {
  std::vector<std::string> (*get)(const SamplerOptions&);
  /// Throws ArgumentError for texts that are no entries of the list.
  void (*set)(SamplerOptions&, const std::vector<std::string>&);
};

/// A row of the table.
struct SamplerOption {
  std::string_view name;  // in requests, in Python; with dashes, of a flag
  std::variant<int64_t SamplerOptions::*, double SamplerOptions::*,
               SamplerWords>
      member;
  /// Both ends inclusive; above: without `least`. -infinity: no end.
  double least, most;
  bool above = false;
  /// What ends the range in messages and documents: "0: off".
  std::string_view note = {};
  std::string_view help;
};

/// In the order of the chain. Static; thread-safe.
std::span<const SamplerOption> SamplerOptionTable();

/// The row of a name, null where there is none.
const SamplerOption* FindSamplerOption(std::string_view name);

/// "temperature" as a flag: "--temperature".
std::string FlagOf(const SamplerOption& option);

/// What it takes, for messages and documents: "a number in (0, 1] (1: off)".
std::string WantedBy(const SamplerOption& option);

SamplerValue ValueOf(const SamplerOption& option,
                     const SamplerOptions& options);

/// Sets one option. A whole number sets a real one, too. Throws ArgumentError
/// for a value of another type or out of range, with the options unchanged.
void SetSamplerOption(SamplerOptions& options, std::string_view name,
                      const SamplerValue& value);

/// As JSON: 0.95, 40, ["\n", ":"].
std::string TextOf(const SamplerValue& value);

}  // namespace tarn
