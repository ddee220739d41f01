// One prompt, several continuations: the prompt is read once, and each
// continuation starts from a copy of the state. Copying costs the bytes of the
// state, whatever the length of the prompt.
//
//   g++ -std=c++20 examples/fork_state.cc -Iinclude -Lbuild -ltarn
//     -Wl,-rpath,build -o fork_state
//   ./fork_state MODEL [PROMPT [COPIES [TOKENS]]]
//
// MODEL is the directory of a language model, such as models/demo of
// `make demo`. fork_state.py is the same program in Python.
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <tarn/tarn.hpp>

namespace {

void Run(const std::string& directory, const std::string& prompt,
         std::uint64_t copies, std::uint64_t tokens) {
  const tarn::Model model = tarn::Model::Open(directory);
  tarn::State state(model);
  state.Prefill(model.Encode(prompt));
  std::cout << state.position() << " tokens read, " << state.bytes()
            << " bytes of state\n";
  for (std::uint64_t seed = 0; seed < copies; ++seed) {
    tarn::State fork = state.Clone();
    std::cout << seed << ": " << prompt;
    fork.Generate({}, {.max_tokens = tokens, .sampler = {.seed = seed}},
                  [](std::string_view text) {
                    std::cout << text;
                    return true;  // false ends the run
                  });
    std::cout << "\n";
  }
  std::cout << "the state is where it was: " << state.position()
            << " tokens read\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: fork_state MODEL [PROMPT [COPIES [TOKENS]]]\n";
    return 2;
  }
  try {
    Run(argv[1], argc > 2 ? argv[2] : "Once upon a time",
        argc > 3 ? std::stoull(argv[3]) : 3,
        argc > 4 ? std::stoull(argv[4]) : 60);
  } catch (const std::exception& error) {
    std::cerr << "fork_state: " << error.what() << "\n";
    return 1;
  }
}
