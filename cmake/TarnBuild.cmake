# Settings every target shares, and the two functions that declare libraries
# and tests: a folder is a library, each *_test.cc in it a test program.
include(CTest)
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TARN_CCACHE ccache)
if(TARN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness as the manual of ccache asks for precompiled headers; paths below
  # the project are relative, so that another checkout finds what one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${TARN_CCACHE})
endif()

find_package(Threads REQUIRED)
if(CMAKE_CROSSCOMPILING)
  # Header-only libraries of the host, without the host's C library headers.
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cross-include)
  foreach(library hwy nlohmann)
    file(CREATE_LINK /usr/include/${library}
         ${PROJECT_BINARY_DIR}/cross-include/${library} SYMBOLIC)
  endforeach()
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE
    ${PROJECT_BINARY_DIR}/cross-include)
else()
  find_package(nlohmann_json 3.11 REQUIRED)
endif()

add_library(tarn_options INTERFACE)
target_compile_features(tarn_options INTERFACE cxx_std_20)
# GCC collects its garbage from 1 GB on, which few files here reach: searching for it
# took about a twentieth of the time. A kernel file takes 0.9 GB instead of 0.45.
# No contraction: an expression has the same bits wherever it is inlined; the
# kernels ask for fused multiply-adds by name.
# -Wrestrict is wrong about "text" + std::string in g++ 12 (PR 105651).
target_compile_options(tarn_options INTERFACE -Wall -Wextra -Werror=switch
  -ffp-contract=off
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=1000000>"
  $<$<BOOL:${TARN_WERROR}>:-Werror>)
target_include_directories(tarn_options INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(TARN_NATIVE)
  # The best of Highway's targets that this machine has, by a name that compiler caches
  # tell apart (-march=native is not one), and no other.
  file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags" LIMIT_COUNT 1)
  if(cpu_flags MATCHES " avx512vl" AND cpu_flags MATCHES " avx512dq" AND
     cpu_flags MATCHES " avx512bw")
    target_compile_options(tarn_options INTERFACE -march=skylake-avx512
                           -maes -mpclmul)
  elseif(cpu_flags MATCHES " avx2" AND cpu_flags MATCHES " fma" AND
         cpu_flags MATCHES " bmi2")
    target_compile_options(tarn_options INTERFACE -march=haswell -maes
                           -mpclmul)
  endif()
  target_compile_definitions(tarn_options INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()
if(TARN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "want clang for TARN_FUZZ, got "
      "${CMAKE_CXX_COMPILER_ID}; -DCMAKE_CXX_COMPILER=clang++ sets it")
  endif()
  if(NOT TARN_SANITIZE)
    set(TARN_SANITIZE address,undefined)
  endif()
  # What guides the fuzzer; its main function is linked into the targets alone.
  target_compile_options(tarn_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(TARN_SANITIZE)
  target_compile_options(tarn_options INTERFACE -fsanitize=${TARN_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tarn_options INTERFACE -fsanitize=${TARN_SANITIZE})
endif()
if(TARN_FUZZ)
  # With it clang 14 cannot assemble coroutines.
  target_compile_options(tarn_options INTERFACE -fno-sanitize=function)
endif()

if(TARN_BUILD_TESTS)
  if(CMAKE_CROSSCOMPILING)
    # Debian's libgtest-dev carries the sources, for builds like this one.
    add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest
                     EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
  endif()
  include(GoogleTest)
endif()

# tarn_sources(variable folders...): every .cc in the folders that is not a test,
# a benchmark, a reference or a main program.
function(tarn_sources variable)
  set(sources)
  foreach(folder ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cc)
    list(FILTER found EXCLUDE REGEX "(_test|_bench|_main|_ref)\\.cc$")
    list(APPEND sources ${found})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# tarn_library(name [folders...]): static library of their sources.
function(tarn_library name)
  tarn_sources(sources ${ARGN})
  if(NOT sources)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cc "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC tarn_options)
endfunction()

# tarn_batches(target): its files compile several at a time, as most of a file's
# time goes into headers and templates that its neighbours need too. Names in
# anonymous namespaces must then differ within the target. `torch`: reading its
# precompiled header costs each batch seconds, so that batches are larger.
function(tarn_batches target)
  if(NOT TARN_BATCHES)
    return()
  endif()
  set(size 8)
  if(TARN_BATCHES GREATER 1)
    set(size ${TARN_BATCHES})
  elseif("torch" IN_LIST ARGN)
    set(size 10)
  elseif(TARN_NATIVE)
    set(size 16)  # built once, by someone who waits for it
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
    UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# tarn_kernel_header(target): in a build for one SIMD target Highway's headers, most
# of what a kernel compiles, are read once. With several targets each reads its own.
function(tarn_kernel_header target)
  if(NOT TARN_NATIVE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <hwy/foreach_target.h>
    <hwy/highway.h> <algorithm> <cmath> <cstring> <string> <vector>)
  # GCC takes its own intrinsics from a precompiled header for the project's code.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized -Wno-maybe-uninitialized>)
endfunction()

if(TARN_BUILD_TESTS AND NOT TARN_WASM)
  # What every test without torch includes, compiled once. Flags must be those of
  # the tests: what is timed and counted is in the libraries, and assertions
  # compile in half the time at -O0.
  file(WRITE ${PROJECT_BINARY_DIR}/test_header.cc "int main() { return 0; }\n")
  add_executable(tarn_test_header ${PROJECT_BINARY_DIR}/test_header.cc)
  target_link_libraries(tarn_test_header PRIVATE tarn_options GTest::gtest)
  target_compile_options(tarn_test_header PRIVATE -O0)
  target_precompile_headers(tarn_test_header PRIVATE <gtest/gtest.h>
    <algorithm> <filesystem> <fstream> <functional> <map> <random> <sstream>
    <string> <thread> <vector>)
endif()

# tarn_tests(folder libraries...): one program for each *_test.cc, its cases
# listed by ctest one by one.
function(tarn_tests folder)
  if(NOT TARN_BUILD_TESTS OR TARN_WASM)  # src/wasm has a program of many
    return()
  endif()
  file(GLOB found CONFIGURE_DEPENDS ${folder}/*_test.cc)
  list(FILTER found EXCLUDE REGEX "_cuda_test\\.cc$")  # TarnCuda.cmake has them
  foreach(source ${found})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${ARGN} GTest::gtest_main)
    target_compile_options(${name} PRIVATE -O0)
    target_precompile_headers(${name} REUSE_FROM tarn_test_header)
    # Both times guard against hanging, on a machine with other work as well.
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
      PROPERTIES TIMEOUT 2400)
  endforeach()
endfunction()

# tarn_torch_tests(name library folders...): one program of all *_test.cc in the
# folders. They share the precompiled header of tarn_modules, which must have
# been compiled with the same flags: hence objects that are position independent
# as a library's are. ctest knows the cases of each file under the file's name.
function(tarn_torch_tests name library)
  if(NOT TARN_BUILD_TESTS)
    return()
  endif()
  set(sources)
  foreach(folder ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*_test.cc)
    list(APPEND sources ${found})
  endforeach()
  add_library(${name}_objects OBJECT ${sources})
  target_link_libraries(${name}_objects PUBLIC ${library} tarn_reference
    GTest::gtest_main)
  target_compile_options(${name}_objects PRIVATE -O1)
  target_compile_definitions(${name}_objects PRIVATE
    TARN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_precompile_headers(${name}_objects REUSE_FROM tarn_modules)
  tarn_batches(${name}_objects torch)
  add_executable(${name})
  target_link_libraries(${name} PRIVATE ${name}_objects)
  foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    file(STRINGS ${source} cases REGEX "^(TYPED_)?TEST(_F|_P)?\\(")
    set(filter "")
    foreach(case ${cases})
      string(REGEX REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+).*" "\\1" suite ${case})
      list(APPEND filter "${suite}.*" "*/${suite}.*")
    endforeach()
    list(REMOVE_DUPLICATES filter)
    list(JOIN filter ":" filter)
    add_test(NAME ${file} COMMAND ${name} "--gtest_filter=${filter}")
    set_tests_properties(${file} PROPERTIES TIMEOUT 2400)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  endforeach()
endfunction()
