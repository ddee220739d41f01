# Cross build for WebAssembly with emscripten, for engines with vectors of 128 bits
# and exceptions. One thread. Tests run under node.
find_program(TARN_EMCC emcc REQUIRED)
get_filename_component(emscripten_root ${TARN_EMCC} REALPATH)
get_filename_component(emscripten_root ${emscripten_root} DIRECTORY)
include(${emscripten_root}/cmake/Modules/Platform/Emscripten.cmake)
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -fwasm-exceptions")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fwasm-exceptions")
# Where Debian has the packages that its emscripten links with; a node that is not
# Debian's does not look there by itself.
set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs)
