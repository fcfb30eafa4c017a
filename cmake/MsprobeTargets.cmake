# One library per engine folder and one test program per tests folder, so that the linker enforces the
# direction of includes (docs/explain/architecture.md): a folder may use only the folders that it names in DEPENDS.

# Little optimisation: tests run for seconds, but compile for minutes.
set(MSPROBE_TEST_FLAGS $<$<CONFIG:Release>:-O1>)

# msprobe_optimize(target -O1): where rooms are joined, generating code is most of a compiler's work. Builds with sanitizers and
# debug builds have levels of their own.
function(msprobe_optimize target level)
  if(CMAKE_UNITY_BUILD AND NOT MSPROBE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endif()
endfunction()

# msprobe_flags(target): the warnings and sanitizers every target of ours is built with.
# -Wrestrict: g++ 12 reports `"text" + std::string` as an overlapping copy (gcc bug 105329).
function(msprobe_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A file that is joined looks like a header, in which types of an unnamed namespace would be wrong.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  if(MSPROBE_WERROR)
    target_compile_options(${target} PRIVATE -Wshadow -Werror)
  endif()
  if(MSPROBE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${MSPROBE_SANITIZE} -fno-omit-frame-pointer -g)
    target_link_options(${target} PUBLIC -fsanitize=${MSPROBE_SANITIZE})
  endif()
endfunction()

# msprobe_library(formats DEPENDS base LINK PkgConfig::deflate): a library of the sources in this folder.
# msprobe_library(compare_align DIR align DEPENDS compare_model dump): a room, from the sources in align/.
# OPTIMIZE -O3: what computes with tensors or records them; -O1: what writes texts. Default: -O2.
function(msprobe_library name)
  cmake_parse_arguments(ARG "" "DIR;OPTIMIZE" "DEPENDS;LINK" ${ARGN})
  if(NOT ARG_OPTIMIZE)
    set(ARG_OPTIMIZE -O2)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_DIR}/*.cc)
  add_library(msprobe_${name} STATIC ${sources})
  target_include_directories(msprobe_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  list(TRANSFORM ARG_DEPENDS PREPEND msprobe_)
  target_link_libraries(msprobe_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_LINK})
  msprobe_flags(msprobe_${name})
  msprobe_optimize(msprobe_${name} ${ARG_OPTIMIZE})
  if(name STREQUAL "base")
    msprobe_precompile(msprobe_base engine)
  else()
    msprobe_precompile(msprobe_${name} FROM msprobe_base)
  endif()
endfunction()

# msprobe_test(dump DEPENDS dump): tests/dump/*_test.cc become the program dump_test.
function(msprobe_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(NOT sources)
    message(WARNING "no *_test.cc in ${CMAKE_CURRENT_SOURCE_DIR}: ${name}_test is not built")
    return()
  endif()
  add_executable(${name}_test ${sources})
  list(TRANSFORM ARG_DEPENDS PREPEND msprobe_)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPENDS} ${ARG_LINK} GTest::gmock_main)
  target_compile_definitions(${name}_test PRIVATE
    MSPROBE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  msprobe_flags(${name}_test)
  target_compile_options(${name}_test PRIVATE ${MSPROBE_TEST_FLAGS})
  if(name STREQUAL "base")
    msprobe_precompile(base_test tests)
  else()
    msprobe_precompile(${name}_test FROM base_test)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
endfunction()
