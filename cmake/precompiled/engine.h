// What most files of engine/ and cli/ include (cmake/Precompile.cmake). No file includes this one. Headers of ours
// do not belong here: a change in one would compile all files again, and g++ gives no warnings for this one.
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
