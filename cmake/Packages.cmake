# Third-party libraries. The versions are the oldest that are tested: those of Debian 12. With MSPROBE_STATIC the
# program and the extension contain these libraries, and at run time need only the C library.

find_package(Threads REQUIRED)
find_package(fmt 9.1 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy>=1.0.3)
pkg_check_modules(deflate REQUIRED IMPORTED_TARGET libdeflate>=1.14)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib>=1.2.13)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3>=3.40)
if(MSPROBE_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(simdjson 3.0 REQUIRED)
endif()
if(MSPROBE_BENCH)
  find_package(benchmark 1.7 REQUIRED)
endif()

set(MSPROBE_FMT fmt::fmt)

# Sets `variable` to the static archive (.a) of a library.
function(msprobe_find_archive variable name)
  find_library(${variable} lib${name}.a)
  if(NOT ${variable})
    message(FATAL_ERROR "MSPROBE_STATIC: expected lib${name}.a, found only the shared library; Debian's packages of "
            "packaging/debian-packages.txt have the archive")
  endif()
endfunction()

if(MSPROBE_STATIC)
  set(MSPROBE_FMT fmt::fmt-header-only)
  msprobe_find_archive(MSPROBE_YAML_ARCHIVE yaml-cpp)
  get_target_property(configurations yaml-cpp IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION_${configuration} ${MSPROBE_YAML_ARCHIVE})
  endforeach()
  msprobe_find_archive(MSPROBE_DEFLATE_ARCHIVE deflate)
  set_target_properties(PkgConfig::deflate PROPERTIES INTERFACE_LINK_LIBRARIES ${MSPROBE_DEFLATE_ARCHIVE})
  msprobe_find_archive(MSPROBE_ZLIB_ARCHIVE z)
  set_target_properties(PkgConfig::zlib PROPERTIES INTERFACE_LINK_LIBRARIES ${MSPROBE_ZLIB_ARCHIVE})
  msprobe_find_archive(MSPROBE_SQLITE_ARCHIVE sqlite3)
  set_target_properties(PkgConfig::sqlite3 PROPERTIES INTERFACE_LINK_LIBRARIES "${MSPROBE_SQLITE_ARCHIVE};m")
  # Highway is not linked: Debian has no static archive, and its headers are enough (engine/kernels/cpu_targets.cc).
  set_target_properties(PkgConfig::hwy PROPERTIES INTERFACE_LINK_LIBRARIES "")
  # The symbols of the archives are not exported: PyTorch in the same process has its own copies of some libraries.
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endif()
