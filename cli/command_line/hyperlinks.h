// Places in files as links that a terminal opens (OSC 8). Only for terminals: a pipe gets plain
// text.
//
//   text = LinkPlaces("train.py:41 in forward: y = f(x)");   // a link around "train.py:41"
//   text = CutPlace("/home/me/project/models/net.py:41", 20);   // "...models/net.py:41"
#pragma once

#include <string>
#include <string_view>

namespace msprobe::cli {

// Puts a link around each `path.py:line` whose file exists, seen from the working directory. The
// link takes no columns. Other text is unchanged.
std::string LinkPlaces(std::string_view text);

// A path or name in at most `width` columns: what a person looks for is at its end.
std::string CutPlace(std::string_view text, size_t width);

}  // namespace msprobe::cli
