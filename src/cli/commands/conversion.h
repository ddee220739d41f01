// What `tarn import` and `tarn export` share: their flags, progress and report.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/console/parse.h"
#include "runtime/model/convert.h"

namespace tarn::cli {

struct ConversionFlags {
  std::string from, out, weights = "stored";
  bool overwrite = false;
};

/// source, output: what the positional and --out are.
void DeclareConversion(ArgumentParser& parser, const std::string& source,
                       const std::string& output, ConversionFlags& flags);

/// Runs it with progress on stderr, and prints what was written; returns the
/// exit code, also after a signal. label: "tarn import".
int RunConversion(const std::string& label, const ConversionFlags& flags,
                  const std::function<Converted(const ConvertOptions&)>& run);

/// The same without a report; nothing after a signal, which was told. An
/// interrupted run of the same command continues.
std::optional<Converted> RunWithProgress(
    const std::string& label, ConvertOptions options,
    const std::function<Converted(const ConvertOptions&)>& run);

}  // namespace tarn::cli
