# The benchmark cases of the kernels, which benchmarks time and tests count.

# tarn_kernel_cases(): the library kernel_cases, once, of every <op>_bench.cc next to a
# kernel, the machine's limits and a written file that registers their cases. The
# functions that do so are found by their first lines and called in the order of their
# names.
function(tarn_kernel_cases)
  if(TARGET kernel_cases)
    return()
  endif()
  file(GLOB cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*/*_bench.cc)
  set(functions)
  foreach(case ${cases})
    file(STRINGS ${case} found REGEX "^void Register[A-Za-z0-9]+\\(Registry& ")
    foreach(line ${found})
      string(REGEX MATCH "Register[A-Za-z0-9]+" function ${line})
      list(APPEND functions ${function})
    endforeach()
  endforeach()
  list(SORT functions)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cases})
  list(TRANSFORM functions PREPEND "void " OUTPUT_VARIABLE declared)
  list(TRANSFORM declared APPEND "(Registry& registry)\;\n")
  list(TRANSFORM functions PREPEND "  " OUTPUT_VARIABLE called)
  list(TRANSFORM called APPEND "(registry)\;\n")
  list(JOIN declared "" declared)
  list(JOIN called "" called)
  set(written ${CMAKE_CURRENT_BINARY_DIR}/kernel_cases.cc)
  file(CONFIGURE OUTPUT ${written} CONTENT
"// Written by cmake/TarnKernelCases.cmake.
#include \"registry.h\"

namespace tarn::bench {

${declared}
void RegisterKernels(Registry& registry) {
${called}}

}  // namespace tarn::bench
")
  set(native ${PROJECT_SOURCE_DIR}/bench/native)
  add_library(kernel_cases STATIC EXCLUDE_FROM_ALL ${cases} ${written}
    ${native}/limits.cc ${native}/params.cc ${native}/registry.cc)
  target_include_directories(kernel_cases PUBLIC ${native})
  target_link_libraries(kernel_cases PUBLIC tarn_kernels)
  tarn_batches(kernel_cases)
endfunction()
