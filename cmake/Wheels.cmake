# MSPROBE_WHEELS: the commands of ptdbg_ascend 0.1: bash ./configure; mkdir build; cd build; cmake ..; make -j8; make install.
# `make` writes two wheels to ptdbg_ascend/dist/ in the build folder, packed by tools/pack_wheel.py: ptdbg_ascend (only
# Python) and mindstudio-probe (the engine), on which ptdbg_ascend depends.

# Sets Python_EXECUTABLE to the configured Python, and nanobind_DIR. Downloads nanobind only if neither that Python nor
# .venv/ has the version that pyproject.toml names.
function(msprobe_use_configured_python)
  set(choice ${MSPROBE_CONFIGURED})
  if(NOT EXISTS ${choice})
    message(FATAL_ERROR "no Python is configured: tools/PYTHON_BIN_PATH is missing; type: bash ./configure\n"
            "(in ${PROJECT_SOURCE_DIR}; without Python: cmake -DMSPROBE_WHEELS=OFF)")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${choice})
  file(STRINGS ${choice} python LIMIT_COUNT 1)
  if(NOT EXISTS ${python})
    message(FATAL_ERROR "the Python that was configured is gone: ${python}; type: bash ./configure")
  endif()
  set(Python_EXECUTABLE ${python} CACHE FILEPATH "the Python of tools/PYTHON_BIN_PATH" FORCE)

  file(STRINGS ${PROJECT_SOURCE_DIR}/pyproject.toml requires REGEX "nanobind==")
  string(REGEX MATCH "nanobind==([0-9.]+)" wanted "${requires}")
  set(version ${CMAKE_MATCH_1})
  set(fetched ${PROJECT_BINARY_DIR}/packages)
  foreach(candidate IN ITEMS ${python} ${PROJECT_SOURCE_DIR}/.venv/bin/python FETCH)
    if("${candidate}" STREQUAL "FETCH")
      msprobe_fetch(${python} ${wanted} ${fetched})
      set(candidate ${python})
    endif()
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${fetched} ${candidate} -c
              "import nanobind as n; assert n.__version__ == '${version}'; print(n.cmake_dir())"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE said RESULT_VARIABLE failed)
    if(NOT failed)
      break()
    endif()
  endforeach()
  if(failed)
    message(FATAL_ERROR "${said}")
  endif()
  set(nanobind_DIR ${folder} CACHE PATH "of ${wanted}" FORCE)
endfunction()

# Downloads with the pip of that Python. The system's Python often has no pip: then with the pip of a new environment.
function(msprobe_fetch python what folder)
  message(STATUS "fetching ${what}")
  set(pip -m pip install --quiet --disable-pip-version-check --target ${folder} ${what})
  execute_process(COMMAND ${python} ${pip} RESULT_VARIABLE failed ERROR_VARIABLE said)
  if(failed)
    execute_process(COMMAND ${python} -m venv ${folder}-venv ERROR_QUIET OUTPUT_QUIET)
    execute_process(COMMAND ${folder}-venv/bin/python ${pip} RESULT_VARIABLE failed ERROR_VARIABLE said)
  endif()
  if(failed)
    message(FATAL_ERROR "${said}\n${what} is needed to build and could not be fetched; where there is a network, or from a "
            "copy, type: ${python} -m pip install ${what}")
  endif()
endfunction()

# The targets and files that CMakeLists.txt installs as COMPONENT wheel become the engine's wheel.
function(msprobe_add_wheels)
  set(dist ${PROJECT_BINARY_DIR}/ptdbg_ascend/dist)
  set(pack ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/pack_wheel.py)
  set(MSPROBE_PTDBG_REQUIRES "" CACHE STRING
      "what the wheel of ptdbg_ascend depends on; empty: the engine's wheel, where it was built")

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/*.py ${PROJECT_SOURCE_DIR}/python/*.yaml
       ${PROJECT_SOURCE_DIR}/python/*.json)
  set(inputs ${sources} ${PROJECT_SOURCE_DIR}/tools/pack_wheel.py ${PROJECT_SOURCE_DIR}/pyproject.toml)
  set(stage ${PROJECT_BINARY_DIR}/ptdbg_ascend/engine)
  set(stamp ${PROJECT_BINARY_DIR}/ptdbg_ascend/packed)
  # One command makes both wheels, because the metadata of the second names the file of the first.
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${stage} ${dist}
    COMMAND ${CMAKE_COMMAND} -E env --unset=DESTDIR ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR}
            --prefix ${stage} --component wheel
    COMMAND ${pack} --engine ${stage} --ptdbg ${PROJECT_SOURCE_DIR}/python/ptdbg_ascend --dist ${dist}
            --requires=${MSPROBE_PTDBG_REQUIRES}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS msprobe_cli _engine ${inputs}
    COMMENT "packing the wheels into ptdbg_ascend/dist/"
    VERBATIM)
  add_custom_target(wheels ALL DEPENDS ${stamp})

  # --no-deps: each wheel depends at most on the other one.
  install(CODE "
    file(GLOB wheels ${dist}/*.whl)
    set(root)
    if(DEFINED ENV{DESTDIR})
      set(root --root \$ENV{DESTDIR})
    endif()
    execute_process(
      COMMAND ${Python_EXECUTABLE} -m pip install --disable-pip-version-check --no-deps --upgrade --force-reinstall
              \${root} \${wheels}
      RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR \"pip of ${Python_EXECUTABLE} could not install the wheels of ${dist}: see above. Without pip: \"
        \"${Python_EXECUTABLE} -m ensurepip. A Python that belongs to the system: make a virtual environment and name its \"
        \"Python in: bash ./configure\")
    endif()")
endfunction()
