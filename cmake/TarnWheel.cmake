# What goes into the Python wheel (pyproject.toml): the extension of
# tarn.runtime, the program `tarn` and, with a torch, the operators. They find
# their libraries relative to themselves. `tarn train` comes with a build of the
# source tree.
add_custom_target(tarn_wheel DEPENDS tarn_python_runtime tarn)
install(TARGETS tarn_python_runtime LIBRARY DESTINATION tarn/runtime
        COMPONENT wheel)
install(TARGETS tarn RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR}
        COMPONENT wheel)
if(TARN_BUILD_TORCH)
  add_dependencies(tarn_wheel tarn_pytorch)
  set_target_properties(tarn_pytorch PROPERTIES
    INSTALL_RPATH "$ORIGIN/../../torch/lib")
  install(TARGETS tarn_pytorch LIBRARY DESTINATION tarn/lib COMPONENT wheel)
endif()

# A wheel for other machines: everything is linked in except glibc, libgcc_s and
# Highway's library, which auditwheel puts in (scripts/build_wheels.py). The
# operators share libstdc++ with torch and belong to systems like this one.
if(TARN_PORTABLE)
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    message(FATAL_ERROR "TARN_PORTABLE: want x86_64, got "
      "${CMAKE_SYSTEM_PROCESSOR} (cmake/glibc_2_28.cc names its versions)")
  endif()
  add_library(tarn_glibc INTERFACE)
  target_sources(tarn_glibc INTERFACE ${PROJECT_SOURCE_DIR}/cmake/glibc_2_28.cc)
  target_link_options(tarn_glibc INTERFACE -static-libstdc++
    LINKER:--exclude-libs,ALL
    LINKER:--push-state,--no-as-needed,-l:libpthread.so.0,--pop-state)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/cmake/glibc_2_28.cc
    TARGET_DIRECTORY tarn tarn_python_runtime PROPERTIES
    COMPILE_OPTIONS "-fno-builtin;-Wno-maybe-uninitialized")
  target_link_libraries(tarn PRIVATE tarn_glibc)
  target_compile_definitions(tarn PRIVATE TARN_PROGRAM)
  target_link_libraries(tarn_python_runtime PRIVATE tarn_glibc)
endif()
