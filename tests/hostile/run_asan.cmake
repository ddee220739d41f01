# Configures and builds a mutation test with sanitizers, then runs it. The
# build folder stays, so that a second run compiles nothing.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "exit ${status}: ${line}")
  endif()
endfunction()

# -O0: most of the time goes into compiling, and sanitizers see the same accesses.
# What is mutated are files, so that kernels are the plain ones of the build around it:
# sanitized, they compile longer than all the rest. The preset asan has them.
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=RelWithDebInfo
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -g1"
    -DTARN_BUILD_TORCH=OFF -DTARN_BUILD_BENCH=OFF -DTARN_BATCHES=16
    -DTARN_SANITIZE=address,undefined -DTARN_KERNELS_LIBRARY=${KERNELS})
run(${CMAKE_COMMAND} --build ${BUILD} --target ${TEST})
run(${CMAKE_COMMAND} -E env
    # Allocations beyond 512 MB fail as they would on a full machine; the test
    # holds that none is asked for.
    ASAN_OPTIONS=detect_leaks=1:max_allocation_size_mb=512:allocator_may_return_null=1
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    ${BUILD}/${TEST})
