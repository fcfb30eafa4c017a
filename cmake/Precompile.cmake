# Makes compilation faster with ccache, if it is installed, and with precompiled headers: the headers that most files
# include (cmake/precompiled/*.h) are parsed once instead of in each of 400 files, which saves a third of the time.
# Each file still includes all headers that it uses, because `make fuzz` and `make sanitize` compile without precompiled headers.
option(MSPROBE_PCH "parse the headers that most files include once, not in each file" ON)

find_program(CCACHE ccache)
if(CCACHE)
  # ccache caches files that use precompiled headers only with these two options. The user's own options are kept.
  execute_process(COMMAND ${CCACHE} --get-config sloppiness OUTPUT_VARIABLE sloppiness OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REPLACE " " "" sloppiness "${sloppiness},pch_defines,time_macros")
  string(REGEX REPLACE "^," "" sloppiness "${sloppiness}")
  find_program(ENV_PROGRAM NAMES env REQUIRED)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ENV_PROGRAM} CCACHE_SLOPPINESS=${sloppiness} ${CCACHE})
endif()

# msprobe_precompile(msprobe_base engine): the target compiles cmake/precompiled/engine.h and uses it.
# msprobe_precompile(msprobe_dump FROM msprobe_base): uses the one of msprobe_base; both need the same compiler flags.
function(msprobe_precompile target)
  if(NOT MSPROBE_PCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "FROM" "" ${ARGN})
  if(ARG_FROM)
    target_precompile_headers(${target} REUSE_FROM ${ARG_FROM})
  else()
    # Between < and >, the generated file has no path of the checkout, so that ccache also finds it from another checkout.
    target_precompile_headers(${target} PRIVATE "<cmake/precompiled/${ARG_UNPARSED_ARGUMENTS}.h>")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False warnings in libstdc++: its headers disable them with pragmas, which g++ loses in a precompiled header (gcc
    # bug 64117).
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
    if(CCACHE)
      target_compile_options(${target} PRIVATE -fpch-preprocess) # else ccache hashes the text of the headers for each file
    endif()
  endif()
endfunction()
