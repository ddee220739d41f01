// The program `tarn`: subcommands, exit codes, and what they share.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "runtime/session/loaded_model.h"

namespace tarn::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadModel = 3;
// A run ended by a signal exits with 128 + its number: SIGINT 130.

/// Runs one command line. argv[1] names the subcommand. Returns the exit code;
/// never throws.
int Main(int argc, char** argv);

/// The subcommands; argv[0] is the subcommand's name. They throw tarn::Error
/// and ExitError, which Main turns into one line on stderr and an exit code.
int Generate(int argc, char** argv);
int Chat(int argc, char** argv);
int Serve(int argc, char** argv);
int Draw(int argc, char** argv);
int Classify(int argc, char** argv);
int Embed(int argc, char** argv);
int Eval(int argc, char** argv);
int Info(int argc, char** argv);
int Bench(int argc, char** argv);
int Verify(int argc, char** argv);
int Tokenize(int argc, char** argv);
int Import(int argc, char** argv);
int Export(int argc, char** argv);
int Quantize(int argc, char** argv);
/// Becomes tarn-train (see hand_over.h); returns only when that fails.
int Train(int argc, char** argv);
/// Become tarn-experiment and tarn-plot; they return only when that fails.
int Experiment(int argc, char** argv);
int Plot(int argc, char** argv);

/// A failure whose exit code is not the one its error kind would have.
class ExitError : public std::runtime_error {
 public:
  ExitError(int code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

/// Opens a model directory or GGUF file; throws ExitError(kExitBadModel) for
/// every failure.
LoadedModel OpenModelPath(const ModelPath& path, const ModelOptions& options);

/// A path for a message or an error: "-" reads as "standard input".
std::string InputName(const std::string& path);

}  // namespace tarn::cli
