# CUDA kernels: src/kernels/<op>/*.cu, compiled twice from one source. nvcc makes the
# library tarn_cuda of them, where it is found. g++ compiles them as C++ against the
# device that tests/cuda_emulation emulates, for <op>/*_cuda_test.cc on any machine.

# What the emulation cannot run under: it switches stacks without telling TSan.
set(TARN_CUDA_EMULATION ${TARN_BUILD_TESTS})
if(TARN_SANITIZE MATCHES "thread")
  set(TARN_CUDA_EMULATION OFF)
endif()

if(NOT TARN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TARN_CUDA: want AUTO, ON or OFF, got ${TARN_CUDA}")
endif()
set(TARN_HAS_NVCC OFF)
if(TARN_CUDA AND NOT CMAKE_CROSSCOMPILING AND NOT TARN_NATIVE)
  find_program(TARN_NVCC nvcc HINTS ENV CUDACXX
    PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(TARN_NVCC)
    execute_process(COMMAND ${TARN_NVCC} --version OUTPUT_VARIABLE nvcc_version
      ERROR_QUIET)
    if(nvcc_version MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 13)
      set(TARN_HAS_NVCC ON)
      # Its headers and libraries, by its own account: nvcc may be a script elsewhere.
      execute_process(COMMAND ${TARN_NVCC} --dryrun -x cu -c /dev/null
        OUTPUT_QUIET ERROR_VARIABLE nvcc_steps)
      string(REGEX MATCH "TOP=([^\n]+)" _ "${nvcc_steps}")
      get_filename_component(TARN_CUDA_ROOT "${CMAKE_MATCH_1}" ABSOLUTE)
      message(STATUS "CUDA in ${TARN_CUDA_ROOT}")
    endif()
  endif()
endif()
if(TARN_CUDA STREQUAL "ON" AND NOT TARN_HAS_NVCC)
  message(FATAL_ERROR "TARN_CUDA=ON: want nvcc 13 or newer, got ${TARN_NVCC}: "
    "set CUDACXX, or leave CUDA out with -DTARN_CUDA=OFF")
endif()

# Machine code for Ampere and Hopper, and PTX for what comes after them.
set(TARN_CUDA_TARGETS "80;90a" CACHE STRING
    "Compute capabilities of the CUDA kernels: 80 or newer, as nvcc writes them")
set(TARN_CUDA_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr
  -Xcompiler -fPIC,-fvisibility=hidden,-Wall)
foreach(target ${TARN_CUDA_TARGETS})
  if(target MATCHES "a$")  # runs on this generation alone, as PTX too
    list(APPEND TARN_CUDA_FLAGS -gencode arch=compute_${target},code=sm_${target})
  else()
    list(APPEND TARN_CUDA_FLAGS
      -gencode arch=compute_${target},code=[sm_${target},compute_${target}])
  endif()
endforeach()

# tarn_cuda_library(sources...): the static library tarn_cuda of them, by nvcc.
function(tarn_cuda_library)
  set(launcher)
  if(TARN_CCACHE)
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${TARN_CCACHE})
  endif()
  set(objects)
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src ${source})
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${launcher} ${TARN_NVCC} ${TARN_CUDA_FLAGS}
        -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/src/kernels/cuda/device
        -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "nvcc ${name}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_library(tarn_cuda STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(tarn_cuda PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(tarn_cuda PUBLIC tarn_kernels)
  if(TARN_BUILD_TESTS)
    # nvcc compiles when this runs, unless the operators have asked for it before.
    add_test(NAME cuda_compiles COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}
      --target tarn_cuda)
    set_tests_properties(cuda_compiles PROPERTIES TIMEOUT 7200)
  endif()
endfunction()

# tarn_cuda_emulated(sources...): the same sources as C++ in the library
# tarn_cuda_emulated.
function(tarn_cuda_emulated)
  set(emulation ${PROJECT_SOURCE_DIR}/tests/cuda_emulation)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-xc++")
  add_library(tarn_cuda_emulated STATIC EXCLUDE_FROM_ALL ${ARGN}
    ${emulation}/block.cc ${emulation}/fiber.cc)
  target_include_directories(tarn_cuda_emulated PUBLIC ${emulation})
  target_link_libraries(tarn_cuda_emulated PUBLIC tarn_kernels)
  # Kernels read and write vectors of their numbers, which nvcc allows.
  target_compile_options(tarn_cuda_emulated PRIVATE -O2 -fno-strict-aliasing
    -Wno-unknown-pragmas)
endfunction()

# tarn_cuda_kernels(folders...): both libraries of the folders' .cu files, and one
# program for each *_cuda_test.cc in them.
function(tarn_cuda_kernels)
  set(sources)
  set(tests ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/emulation_test.cc)
  foreach(folder ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cu)
    list(APPEND sources ${found})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*_cuda_test.cc)
    list(APPEND tests ${found})
  endforeach()
  if(TARN_HAS_NVCC AND sources)
    tarn_cuda_library(${sources})
  endif()
  if(NOT TARN_CUDA_EMULATION OR TARN_WASM)  # which has no fibers
    return()
  endif()
  tarn_cuda_emulated(${sources})
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    add_executable(${name} ${test})
    # The archive's order: kernels, then what they call.
    target_link_libraries(${name} PRIVATE tarn_cuda_emulated tarn_kernels_ref
      tarn_kernels GTest::gtest_main)
    target_compile_options(${name} PRIVATE -O1 -fno-strict-aliasing)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
      PROPERTIES TIMEOUT 2400)
  endforeach()
endfunction()
