# tarn-experiment and tarn-plot, what `tarn experiment` and `tarn plot` hand over to: for
# each a launcher in the build tree that uses the sources, and one that is installed with
# a copy of them.
file(RELATIVE_PATH tarn_bin_to_package
     /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR}/tarn)
foreach(launched experiment:experiments plot:plotting)
  string(REGEX REPLACE ":.*" "" TARN_LAUNCHED_COMMAND ${launched})
  string(REGEX REPLACE ".*:" "" TARN_LAUNCHED_PACKAGE ${launched})
  set(TARN_EXPERIMENT_PACKAGE "${PROJECT_SOURCE_DIR}")
  set(TARN_EXPERIMENT_LIBRARIES "$here")
  set(TARN_EXPERIMENT_BUILD "$here")
  set(TARN_EXPERIMENT_PYTHON "${TARN_PYTHON}")
  set(launcher tarn-${TARN_LAUNCHED_COMMAND})
  configure_file(cmake/tarn-launcher.in ${PROJECT_BINARY_DIR}/${launcher}
    @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  # Installed: relative to the launcher, and a Python from PATH.
  set(TARN_EXPERIMENT_PACKAGE "$here/${tarn_bin_to_package}")
  set(TARN_EXPERIMENT_LIBRARIES "$package/python/tarn/lib")
  set(TARN_EXPERIMENT_BUILD "$package")
  set(TARN_EXPERIMENT_PYTHON python3)
  configure_file(cmake/tarn-launcher.in
    ${PROJECT_BINARY_DIR}/installed/${launcher} @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/installed/${launcher}
          DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT training)
endforeach()
install(DIRECTORY experiments bench plotting
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/tarn
        COMPONENT training FILES_MATCHING PATTERN "*.py"
        PATTERN __pycache__ EXCLUDE PATTERN native EXCLUDE)
if(TARGET tarn_bench)
  install(TARGETS tarn_bench LIBRARY
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/tarn COMPONENT training)
endif()
if(TARGET tarn_python_runtime)
  # tarn.runtime, which some experiments measure.
  install(TARGETS tarn_python_runtime LIBRARY
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/tarn/python/tarn/runtime
          COMPONENT training)
endif()
