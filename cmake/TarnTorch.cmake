# libtorch as the Python wheel carries it. Its libraries are linked directly
# and its own CMake files are not used: those of a CUDA build ask for the CUDA
# toolkit, which a CPU build of tarn does not need. With a toolkit (TARN_HAS_NVCC) and
# a torch for CUDA, the operators get their CUDA kernels: TARN_TORCH_CUDA.
if(NOT TARN_PYTHON)
  if(DEFINED ENV{TARN_PYTHON} AND NOT "$ENV{TARN_PYTHON}" STREQUAL "")
    set(TARN_PYTHON $ENV{TARN_PYTHON} CACHE FILEPATH "" FORCE)
  else()
    set(TARN_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "" FORCE)
  endif()
endif()
set(TARN_TORCH_DIR "" CACHE PATH
    "Folder of a torch to build for, site-packages/torch; empty: TARN_PYTHON's")
execute_process(
  COMMAND ${TARN_PYTHON} ${PROJECT_SOURCE_DIR}/cmake/find_torch.py ${TARN_TORCH_DIR}
  OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_status
  ERROR_VARIABLE torch_error OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_status EQUAL 0)
  message(FATAL_ERROR "No torch >= 2.11 in TARN_PYTHON=${TARN_PYTHON}:\n"
    "${torch_error}\nRun `make setup`, point TARN_PYTHON at a Python that has "
    "torch, or build the part that needs none with `make runtime`.")
endif()
list(GET torch_facts 0 TARN_TORCH_VERSION)
list(GET torch_facts 1 TARN_TORCH_DIR)
list(GET torch_facts 2 TARN_TORCH_ABI)
if(TARN_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch: want 2.11 or newer, got ${TARN_TORCH_VERSION} "
    "(${TARN_TORCH_DIR})")
endif()
message(STATUS "torch ${TARN_TORCH_VERSION} in ${TARN_TORCH_DIR}")

add_library(tarn_torch INTERFACE)
target_include_directories(tarn_torch SYSTEM INTERFACE
  ${TARN_TORCH_DIR}/include ${TARN_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(tarn_torch INTERFACE
  _GLIBCXX_USE_CXX11_ABI=${TARN_TORCH_ABI})
target_link_directories(tarn_torch INTERFACE ${TARN_TORCH_DIR}/lib)
target_link_libraries(tarn_torch INTERFACE
  ${TARN_TORCH_DIR}/lib/libtorch.so ${TARN_TORCH_DIR}/lib/libtorch_cpu.so
  ${TARN_TORCH_DIR}/lib/libc10.so)
# The wheel's OpenMP library is next to libtorch_cpu under a hashed name.
target_link_options(tarn_torch INTERFACE
  -Wl,-rpath-link,${TARN_TORCH_DIR}/lib)

set(TARN_TORCH_CUDA OFF)
if(TARN_HAS_NVCC AND EXISTS ${TARN_TORCH_DIR}/lib/libc10_cuda.so AND
   EXISTS ${TARN_TORCH_DIR}/include/c10/cuda/CUDAStream.h)
  set(TARN_TORCH_CUDA ON)
  message(STATUS "The operators get CUDA kernels")
elseif(TARN_CUDA STREQUAL "ON")
  message(FATAL_ERROR "TARN_CUDA=ON: want a torch for CUDA, got ${TARN_TORCH_DIR}")
endif()
if(EXISTS ${TARN_TORCH_DIR}/lib/libtorch_cuda.so)
  # Programs are linked where the CUDA libraries of such a torch need not be.
  target_link_options(tarn_torch INTERFACE
    -Wl,--unresolved-symbols=ignore-in-shared-libs)
  # Nothing here calls it, but programs have CUDA devices only where it is loaded.
  target_link_libraries(tarn_torch INTERFACE
    -Wl,--push-state,--no-as-needed ${TARN_TORCH_DIR}/lib/libtorch_cuda.so
    -Wl,--pop-state)
endif()
