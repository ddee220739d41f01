// generate_cpp DIR: continues "hello" by 20 tokens, with the C++ owner.
#include <iostream>
#include <tarn/tarn.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const tarn::Model model = tarn::Model::Open(argv[1]);
  tarn::State state(model);
  state.Prefill(model.Encode("hello"));
  tarn::SamplerOptions options;
  options.seed = 7;
  for (int i = 0; i < 20; ++i) {
    const auto token = state.Sample(options);
    std::cout << model.Decode(token);
    state.Step(token);
  }
}
