#include "cli/cli.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "cli/console/suggest.h"
#include "kernels/simd_target.h"

namespace tarn::cli {
namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* help;
};

constexpr Command kCommands[] = {
    {"train", Train, "train a model on text (needs the training part)"},
    {"generate", Generate, "write text with a model, token by token"},
    {"chat", Chat, "talk with a model that has a chat template"},
#ifdef TARN_SERVE
    {"serve", Serve, "serve models over HTTP: OpenAI's interface, sessions"},
#endif
    {"draw", Draw, "draw or complete images with an image model"},
    {"classify", Classify, "classify texts, one per line"},
    {"embed", Embed, "texts to vectors, one per line"},
    {"eval", Eval, "measure a model on a file: perplexity, accuracy, errors"},
    {"info", Info, "describe a model: sizes, state, cost per token"},
    {"bench", Bench, "measure prefill, generation and states"},
    {"verify", Verify, "check everything in a model directory or file"},
    {"tokenize", Tokenize, "text to token ids and back; train a tokenizer"},
    {"import", Import, "a published model as a directory of tarn's own"},
    {"export", Export,
     "a model in the form that transformers or llama.cpp opens"},
    {"quantize", Quantize, "a model with weights of 8 or 4 bits"},
    {"plot", Plot,
     "draw the curves of training runs (needs the training part)"},
    {"experiment", Experiment,
     "the paper's experiments (needs the training part)"},
};

std::string Help() {
  std::string text =
      "tarn: train like a transformer, run like an RNN\n\n"
      "Usage: tarn COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += StrCat("  ", command.name,
                   std::string(12 - std::strlen(command.name), ' '),
                   command.help, "\n");
  }
  return text +
         "\n  tarn COMMAND --help  options and examples of one command\n"
         "  tarn --version       version and SIMD target\n\n"
         "Exit codes: 0 done, 1 failure, 2 wrong usage, 3 bad model or data,\n"
         "130 interrupted. TARN_FORCE_TARGET=avx2 forces a SIMD target.\n";
}

int ExitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kArgument:
    case ErrorCode::kDevice:  // TARN_FORCE_TARGET names a missing one
      return kExitUsage;
    case ErrorCode::kFormat:
    case ErrorCode::kNumeric:  // weights that give NaN are a bad model
      return kExitBadModel;
    default:
      return kExitFailure;
  }
}

int Report(const std::string& who, int code, const char* message) {
  std::fprintf(stderr, "%s: error: %s\n", who.c_str(), message);
  return code;
}

int Guarded(const Command& command, int argc, char** argv) {
  const std::string who = StrCat("tarn ", command.name);
  try {
    return command.run(argc, argv);
  } catch (const ExitError& error) {
    return Report(who, error.code(), error.what());
  } catch (const Error& error) {
    return Report(who, ExitCodeOf(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return Report(who, kExitFailure, "out of memory");
  } catch (const std::exception& error) {
    return Report(who, kExitFailure, error.what());
  }
}

int UnknownCommand(std::string_view word) {
  std::vector<std::string> names{"--help", "--version"};
  for (const Command& command : kCommands) names.push_back(command.name);
  std::fprintf(stderr, "tarn: error: no command '%s'%s\nSee `tarn --help`.\n",
               std::string(word).c_str(),
               DidYouMean(std::string(word), names).c_str());
  return kExitUsage;
}

int PrintAndExit(const std::string& text) {
  Payload payload(stdout);
  payload.Write(text);
  payload.Flush();
  return kExitOk;
}

int Dispatch(int argc, char** argv) {
  if (argc < 2) {
    std::fputs(Help().c_str(), stderr);
    return kExitUsage;
  }
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    return PrintAndExit(Help());
  }
  if (word == "--version") {
    return PrintAndExit(
        StrCat("tarn ", TARN_VERSION, " (", SimdTargetName(), ")\n"));
  }
  for (const Command& command : kCommands) {
    if (word == command.name) return Guarded(command, argc - 1, argv + 1);
  }
  return UnknownCommand(word);
}

}  // namespace

LoadedModel OpenModelPath(const ModelPath& path, const ModelOptions& options) {
  Result<LoadedModel> opened = LoadedModel::Open(path, options);
  if (!opened.ok()) throw ExitError(kExitBadModel, opened.error().what());
  return std::move(opened).Take();
}

std::string InputName(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

int Main(int argc, char** argv) {
  InstallSignalHandlers();
  try {
    ApplySimdTargetFromEnvironment();
    return Dispatch(argc, argv);
  } catch (const Error& error) {
    return Report("tarn", ExitCodeOf(error.code()), error.what());
  } catch (const std::exception& error) {
    return Report("tarn", kExitFailure, error.what());
  }
}

}  // namespace tarn::cli
