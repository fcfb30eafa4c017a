// The headers that most files of engine/ and cli/ include: see cmake/Precompile.cmake.
// No file includes this one. Our own headers do not belong here: a change in one would recompile
// all files, and g++ gives no warnings for a precompiled header.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
