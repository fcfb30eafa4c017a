// The headers that most files of python/src/capture/ include: see cmake/Precompile.cmake.
// No file includes this one.
#pragma once

#include <Python.h>

#include <deque>
#include <list>
#include <unordered_set>

#include "cmake/precompiled/engine.h"
