// The headers that most files of python/src/ include: see cmake/Precompile.cmake.
// No file includes this one.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cmake/precompiled/capture.h"
