// `tarn export`: a model in the form that transformers opens.
#include "cli/cli.h"
#include "cli/commands/conversion.h"

namespace tarn::cli {
namespace {

constexpr char kExportFooter[] =
    "Writes config.json with the published type's keys, the weights under its\n"
    "names, and the tokenizer's files if they are in Hugging Face's form. A\n"
    "configuration that no published type has is refused; the message names "
    "the\n"
    "key in which the nearest type differs; exit code 3. The same holds for\n"
    "weights that the type lacks, as a bias of the head that is not 0.\n"
    "All files appear at the end, by rename; the same command continues an\n"
    "export that was interrupted.\n\n"
    "Examples:\n"
    "  tarn export models/mine --to hf --out mine-hf\n"
    "  tarn export models/mine --to hf --type mistral --out mine-hf --weights "
    "bf16\n";

}  // namespace

int Export(int argc, char** argv) {
  ConversionFlags flags;
  std::string to = "hf", type;
  ArgumentParser parser("Writes a model in the form that transformers opens.",
                        "tarn export");
  DeclareConversion(parser, "model directory", flags);
  parser.Add("--to", to, "form: hf, a folder in Hugging Face's form")
      .OneOf({"hf"})
      .ShowDefault();
  parser
      .Add("--type", type,
           "published type; default: the first that has the configuration")
      .OneOf(ExportedModelTypes());
  parser.Footer(kExportFooter);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  return RunConversion(
      "tarn export", flags, [&](const ConvertOptions& options) {
        return ExportModel(flags.from, flags.out, type, options);
      });
}

}  // namespace tarn::cli
