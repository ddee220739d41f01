// `tarn import`: a published model as a directory of tarn's own.
#include "cli/cli.h"
#include "cli/commands/conversion.h"

namespace tarn::cli {
namespace {

constexpr char kImportFooter[] =
    "Published directories open as they are; an import gives what training "
    "and\n"
    "changes need: config.json with tarn's keys, weights under tarn's names "
    "in\n"
    "one file. The tokenizer's files, the chat template and the generation\n"
    "settings are copied. Weights are read and written a few MiB at a time.\n"
    "All files appear at the end, by rename, config.json last. An import that\n"
    "was interrupted leaves files with .partial- in their names, in which the\n"
    "same command continues. What tarn cannot run is refused by name; exit\n"
    "code 3.\n\n"
    "Examples:\n"
    "  tarn import downloads/qwen3-0.6b --out models/qwen3\n"
    "  tarn import downloads/mamba2 --out models/mamba2 --weights bf16\n";

}  // namespace

int Import(int argc, char** argv) {
  ConversionFlags flags;
  ArgumentParser parser(
      "Writes a published model as a directory of tarn's own.", "tarn import");
  DeclareConversion(
      parser,
      "published model: a folder in Hugging Face's form, or a GGUF file",
      "folder to write, made if it is missing", flags);
  parser.Footer(kImportFooter);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  return RunConversion("tarn import", flags,
                       [&](const ConvertOptions& options) {
                         return ImportModel(flags.from, flags.out, options);
                       });
}

}  // namespace tarn::cli
