// The headers that most files of tests/ include: see cmake/Precompile.cmake.
// No file includes this one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cmake/precompiled/engine.h"
