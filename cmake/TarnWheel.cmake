# What goes into the Python wheel (pyproject.toml): the extension of
# tarn.runtime, the program `tarn` and, beside a torch, the operators. They find
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
