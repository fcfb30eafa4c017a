// How a person names a recorded call, the same in every verb: docs/howto/pair-names.md.
//
//   std::vector<NamedCall> calls = {{.name = "Functional.conv2d.2.forward", .line =
//       "net.py:41 in f"}};
//   MSPROBE_ASSIGN_OR_RETURN(const size_t call, OneCallNamed(calls, "conv2d.2", "runs/a/step0"));
//   CallsNamed(calls, "net.py:41");  // {0}
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

struct NamedCall {
  std::string_view name;     // "Functional.conv2d.2", with or without its direction
  std::string line;          // "pkg/net.py:41 in forward: ..."; "": not known
  bool may_be_loss = false;  // a forward call of an API whose result is one number
};

// Whether `text` is a part of the name or its line. Numbers are whole: "conv2d.2" is no part of
// "conv2d.20", and "net.py:4" is not line 41.
bool NamesCall(std::string_view text, const NamedCall& call);

// Indices of the calls that the text means, in their order: those of this name, with or without the
// direction; for "loss" the last that may be it; else those in whose names the text stands between
// dots; else as a part; else those of the line. Of both directions of one call, the forward one.
std::vector<size_t> CallsNamed(std::span<const NamedCall> calls, std::string_view text);

// The one call. Errors, about the file or folder `path`: kInvalidArgument, none or several, which
// the hint lists.
Result<size_t> OneCallNamed(std::span<const NamedCall> calls, std::string_view text,
                            std::string_view path);

}  // namespace msprobe
