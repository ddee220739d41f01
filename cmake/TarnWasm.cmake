# What the WebAssembly build needs in place of the system's libraries.

# tarn_utf8proc_tables(name): a library with the functions of utf8proc that src/text
# calls, over tables that a program of the host prints of the host's utf8proc.
function(tarn_utf8proc_tables name)
  find_program(TARN_HOST_CXX NAMES c++ g++ clang++ REQUIRED)
  set(here ${CMAKE_CURRENT_BINARY_DIR}/utf8proc)
  set(source ${PROJECT_SOURCE_DIR}/cmake/utf8proc_table.cc)
  file(MAKE_DIRECTORY ${here})
  file(CREATE_LINK /usr/include/utf8proc.h
       ${PROJECT_BINARY_DIR}/cross-include/utf8proc.h SYMBOLIC)
  add_custom_command(OUTPUT ${here}/utf8proc_table.inc
    COMMAND ${TARN_HOST_CXX} -std=c++20 -O1 ${source} -o ${here}/print -lutf8proc
    COMMAND ${here}/print > ${here}/utf8proc_table.inc
    DEPENDS ${source} COMMENT "Tables of the host's utf8proc" VERBATIM)
  add_library(${name} STATIC ${PROJECT_SOURCE_DIR}/cmake/utf8proc_wasm.cc
    ${here}/utf8proc_table.inc)
  target_link_libraries(${name} PRIVATE tarn_options)
  target_include_directories(${name} PRIVATE ${here}
    PUBLIC ${PROJECT_BINARY_DIR}/cross-include)
endfunction()
