# Every object of the CUDA kernels holds machine code for sm_80 and for sm_90a, and PTX
# for newer devices. cmake -DNVCC= -DOBJECTS= -P cuda_compiles.cmake
get_filename_component(folder ${NVCC} REALPATH)
get_filename_component(folder ${folder} DIRECTORY)
find_program(cuobjdump cuobjdump HINTS ${folder} /usr/local/cuda/bin REQUIRED)
foreach(object ${OBJECTS})
  execute_process(COMMAND ${cuobjdump} -lelf -lptx ${object}
    OUTPUT_VARIABLE held ERROR_VARIABLE error RESULT_VARIABLE status)
  foreach(part sm_80.cubin sm_90a.cubin sm_80.ptx)
    if(status OR NOT held MATCHES "${part}")
      message(SEND_ERROR "${object}: want ${part}, got ${held}${error}")
    endif()
  endforeach()
endforeach()
