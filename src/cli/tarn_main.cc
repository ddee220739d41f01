#include "cli/cli.h"

int main(int argc, char** argv) { return tarn::cli::Main(argc, argv); }
