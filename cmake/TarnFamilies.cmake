# Families of mixers are folders, which the build finds by itself. A list that is
# written from them names each family's function, so that a static library keeps
# the file that defines it: one that registered itself as the program starts would
# be left out by the linker, as nothing refers to it.

# tarn_families(output namespace row builtin family_function header files...): a
# source file that defines `namespace::builtin()`, the rows of
# `namespace::mixers::FAMILY::family_function()` (or without `mixers`) of all
# families, each the folder of one of the files.
function(tarn_families output namespace row builtin family_function header)
  set(declared)
  set(called)
  foreach(file ${ARGN})
    get_filename_component(folder ${file} DIRECTORY)
    get_filename_component(family ${folder} NAME)
    string(APPEND declared
      "namespace ${family} {\nstd::vector<${row}> ${family_function}();\n}\n")
    string(APPEND called "        ${family}::${family_function},\n")
  endforeach()
  set(outer ${namespace})
  string(REGEX REPLACE "::mixers$" "" outer ${namespace})
  file(CONFIGURE OUTPUT ${output} CONTENT
"// Written by cmake/TarnFamilies.cmake from the folders of mixers.
#include <utility>
#include <vector>

#include \"${header}\"

namespace ${namespace} {
${declared}}  // namespace ${namespace}

namespace ${outer} {

std::vector<${row}> ${builtin}() {
  using namespace ${namespace};
  std::vector<${row}> rows;
  for (auto* family : {
${called}       }) {
    for (${row}& one : family()) rows.push_back(std::move(one));
  }
  return rows;
}

}  // namespace ${outer}
")
endfunction()
