// `tarn export`: a model in the form that transformers or llama.cpp opens.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/commands/conversion.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

constexpr char kExportFooter[] =
    "hf: writes config.json with the published type's keys, the weights under "
    "its\n"
    "names, and the tokenizer's files if they are in Hugging Face's form. "
    "gguf:\n"
    "writes one file for llama.cpp, whose matrices are stored as --type says;\n"
    "vectors and norms are f32, and so is all else that llama.cpp keeps so. A\n"
    "configuration that no published type has is refused; the message names "
    "the\n"
    "key in which the nearest type differs; exit code 3. The same holds for\n"
    "weights that the type lacks, as a bias of the head that is not 0.\n"
    "All files appear at the end, by rename; the same command continues an\n"
    "export that was interrupted.\n\n"
    "Examples:\n"
    "  tarn export models/mine --to hf --out mine-hf\n"
    "  tarn export models/mine --to hf --type mistral --out mine-hf --weights "
    "bf16\n"
    "  tarn export models/mine --to gguf --type q8_0 --out mine.gguf\n";

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

// Throws ExitError for a type that the form does not have.
void CheckType(const std::string& type, const std::vector<std::string>& words) {
  if (type.empty() ||
      std::find(words.begin(), words.end(), type) != words.end()) {
    return;
  }
  throw ExitError(kExitUsage, StrCat("--type: want one of ", Joined(words),
                                     ", got ", Quoted(type)));
}

}  // namespace

int Export(int argc, char** argv) {
  ConversionFlags flags;
  std::string to = "hf", type;
  ArgumentParser parser(
      "Writes a model in the form that transformers or llama.cpp opens.",
      "tarn export");
  DeclareConversion(parser, "model directory or GGUF file",
                    "folder to write, made if it is missing; gguf: file",
                    flags);
  parser
      .Add("--to", to,
           "form: hf, a folder in Hugging Face's form, or gguf, one file")
      .OneOf({"hf", "gguf"})
      .ShowDefault();
  parser.Add("--type", type,
             StrCat("hf: published type (default: the first that has the "
                    "configuration): ",
                    Joined(ExportedModelTypes()),
                    "; gguf: numbers of matrices (default: stored): ",
                    Joined(ExportedNumbers())));
  parser.Footer(kExportFooter);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  if (to == "gguf") {
    CheckType(type, ExportedNumbers());
    if (parser.Has("--weights")) {
      throw ExitError(kExitUsage,
                      "--weights: not an option of --to gguf (see --type)");
    }
    return RunConversion(
        "tarn export", flags, [&](const ConvertOptions& options) {
          return ExportGguf(flags.from, flags.out,
                            type.empty() ? "stored" : type, options);
        });
  }
  CheckType(type, ExportedModelTypes());
  return RunConversion(
      "tarn export", flags, [&](const ConvertOptions& options) {
        return ExportModel(flags.from, flags.out, type, options);
      });
}

}  // namespace tarn::cli
