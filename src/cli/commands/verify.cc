// `tarn verify`: everything that can be wrong with a model.
#include "runtime/model/verify.h"

#include <optional>
#include <string>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "runtime/model/files.h"
#include "runtime/model/supported.h"

namespace tarn::cli {
namespace {

constexpr char kVerifyFooter[] =
    "Prints one line for each fault: file, tensor, byte offset, the expected\n"
    "and the actual value; exit code 3. A valid model prints one line that\n"
    "begins with ok. If the files are valid but this runtime cannot run the\n"
    "model (`tarn train` supports more architectures), the line names the key\n"
    "of config.json and the supported values; the exit code is also 3.\n\n"
    "Example:\n"
    "  tarn verify models/demo\n";

// Why this runtime does not open a model of this configuration, regardless of
// its files; nothing where the configuration cannot be read, which is a fault
// that VerifyModel names.
std::optional<Error> Refused(const ModelPath& path) {
  const Result<ModelConfig> config = ReadModelConfig(path);
  return config.ok() ? CheckSupported(config.value()) : std::nullopt;
}

}  // namespace

int Verify(int argc, char** argv) {
  std::string dir;
  ArgumentParser parser("Checks everything in a model directory or GGUF file.",
                        "tarn verify");
  parser.Add("DIR", dir, "model directory or GGUF file").Required();
  parser.Footer(kVerifyFooter);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  const ModelPath path(dir);
  const VerifyReport report = VerifyModel(path);
  const std::optional<Error> refused = Refused(path);
  Payload payload(stdout);
  for (const Error& problem : report.problems) {
    payload.Write(StrCat(problem.what(), "\n"));
  }
  if (refused) payload.Write(StrCat(refused->what(), "\n"));
  if (report.problems.empty()) {
    payload.Write(StrCat(refused ? "the files are valid, " : "ok ", dir, ": ",
                         report.tensors, " tensors, ", report.elements,
                         " weights, all finite\n"));
  }
  payload.Flush();
  return report.problems.empty() && !refused ? kExitOk : kExitBadModel;
}

}  // namespace tarn::cli
