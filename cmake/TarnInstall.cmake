# libtarn and `cmake --install`: programs, library, headers, and the files by
# which CMake and pkg-config find them. All paths are relative to the prefix or
# to the file itself, so an installed tree may be moved.
# Components: runtime (no torch), training (needs this machine's libtorch).
include(CMakePackageConfigHelpers)
if(NOT TARGET tarn_shared)
  add_subdirectory(${PROJECT_SOURCE_DIR}/src/capi src/capi)
endif()

install(TARGETS tarn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT runtime)
install(TARGETS tarn_shared EXPORT tarnTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT runtime)
install(FILES include/tarn/tarn.h include/tarn/tarn.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tarn COMPONENT runtime)

# Notices of what programs and library hold of others.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(DIRECTORY licenses DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT runtime)

set(tarn_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tarn)
install(EXPORT tarnTargets NAMESPACE tarn:: DESTINATION ${tarn_cmake_dir}
        COMPONENT runtime)
configure_package_config_file(cmake/tarnConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/tarnConfig.cmake
  INSTALL_DESTINATION ${tarn_cmake_dir})
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/tarnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tarnConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tarnConfigVersion.cmake
        DESTINATION ${tarn_cmake_dir} COMPONENT runtime)

# The prefix as seen from lib/pkgconfig.
file(RELATIVE_PATH TARN_PC_TO_PREFIX
     /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/tarn.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tarn.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tarn.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)

if(TARN_BUILD_TORCH AND TARGET tarn_pytorch AND TARGET tarn-train)
  # The Python package is used by adding this folder to PYTHONPATH.
  set(tarn_python_dir ${CMAKE_INSTALL_LIBDIR}/tarn/python)
  set(tarn_operators_dir ${tarn_python_dir}/tarn/lib)
  file(RELATIVE_PATH tarn_bin_to_operators
       /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${tarn_operators_dir})
  set_target_properties(tarn_pytorch PROPERTIES
    INSTALL_RPATH "${TARN_TORCH_DIR}/lib")
  set_target_properties(tarn-train PROPERTIES
    INSTALL_RPATH "$ORIGIN/${tarn_bin_to_operators}")
  install(TARGETS tarn-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          COMPONENT training)
  # The trainer, which the program loads, and the launcher of `tarn train --ranks`.
  set_target_properties(tarn_train PROPERTIES
    INSTALL_RPATH "$ORIGIN;${TARN_TORCH_DIR}/lib")
  install(TARGETS tarn_train LIBRARY DESTINATION ${tarn_operators_dir}
          COMPONENT training)
  file(RELATIVE_PATH tarn_bin_to_python
       /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${tarn_python_dir})
  set(TARN_RANKS_PACKAGE "$here/${tarn_bin_to_python}")
  set(TARN_RANKS_LIBRARIES "$package/tarn/lib")
  set(TARN_RANKS_PYTHON python3)
  configure_file(cmake/tarn-train-ranks.in
    ${PROJECT_BINARY_DIR}/installed/tarn-train-ranks @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/installed/tarn-train-ranks
          DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT training)
  install(TARGETS tarn_pytorch LIBRARY DESTINATION ${tarn_operators_dir}
          COMPONENT training)
  install(DIRECTORY python/tarn DESTINATION ${tarn_python_dir}
          COMPONENT training
          PATTERN __pycache__ EXCLUDE PATTERN "*.so" EXCLUDE
          PATTERN "*_test.py" EXCLUDE PATTERN "test_*.py" EXCLUDE)
endif()
