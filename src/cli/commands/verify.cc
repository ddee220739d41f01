// `tarn verify`: everything that can be wrong with a model directory.
#include "runtime/model/verify.h"

#include <string>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"

namespace tarn::cli {
namespace {

constexpr char kFooter[] =
    "Prints one line for each fault: file, tensor, byte offset, what must be\n"
    "there and what is; exit code 3. A sound model gives one line that begins\n"
    "with ok.\n\n"
    "Example:\n"
    "  tarn verify models/demo\n";

}  // namespace

int Verify(int argc, char** argv) {
  std::string dir;
  CLI::App app("Checks everything in a model directory.", "tarn verify");
  app.add_option("DIR", dir, "model directory")->required();
  app.footer(kFooter);
  if (const auto code = ParseArguments(app, argc, argv)) return *code;
  const VerifyReport report = VerifyModel(dir);
  Payload payload(stdout);
  for (const Error& problem : report.problems) {
    payload.Write(StrCat(problem.what(), "\n"));
  }
  if (report.problems.empty()) {
    payload.Write(StrCat("ok ", dir, ": ", report.tensors, " tensors, ",
                         report.elements, " weights, all finite\n"));
  }
  payload.Flush();
  return report.problems.empty() ? kExitOk : kExitBadModel;
}

}  // namespace tarn::cli
