# cmake -D TARN=... -D OUT=... -P paper_quick.cmake: every experiment at smoke
# size from nothing, then the report; skipped where the data of one are not on this machine.
file(REMOVE_RECURSE ${OUT})
execute_process(COMMAND $ENV{TARN_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/paper_data.py
  RESULT_VARIABLE code ERROR_VARIABLE errors)
if(code EQUAL 3)
  message("${errors}\nSKIPPED: data are missing")
  return()
endif()
execute_process(COMMAND ${TARN} experiment all --size quick --out ${OUT}
  RESULT_VARIABLE code ERROR_VARIABLE errors)
message("${errors}")
if(NOT code EQUAL 0)
  message(FATAL_ERROR "tarn experiment all: exit code ${code}")
endif()
execute_process(COMMAND ${TARN} experiment report --out ${OUT}
  --to ${OUT}/report RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "tarn experiment report: exit code ${code}")
endif()
foreach(file README.md results/scaling.json results/copy.json results/images.json
    results/generation.json results/completion.json results/speech.json results/long.json
    results/maps.json results/recall.json results/earlier.json results/same_start.json)
  if(NOT EXISTS ${OUT}/report/${file})
    message(FATAL_ERROR "want ${OUT}/report/${file}, got no such file")
  endif()
endforeach()
