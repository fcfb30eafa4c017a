// A call's stack as one line for people.
//
//   UserSourceLine({"File /env/site-packages/torch/nn/functional.py, line 9, in gelu, \n return g",
//                   "File train.py, line 41, in forward, \n y = F.gelu(x)"});
//   // "train.py:41 in forward: y = F.gelu(x)"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msprobe::dump {

struct StackFrame {
  std::string_view path, line, function, source;  // source: "" where it was not known
  bool parsed = false;  // false: the text has another form; all members are empty
};
// Of one frame as stack.json spells it.
StackFrame ParseStackFrame(std::string_view text);
// "net.py:24 in forward: return self.norm(x)", on one line; the path of a package begins with the
// package.
std::string LineOf(const StackFrame& frame);
// The parsed frames outside of the framework and of installed packages, in the order of `frames`.
std::vector<StackFrame> OwnFrames(const std::vector<std::string_view>& frames);

// Where a call was made. `frames` as in stack.json, the innermost first.
struct SourcePlace {
  // The innermost frame outside of the framework: the line of the model, in the program or in a
  // package that the program uses. The path of a package begins with the package. If all frames are
  // of the framework: the innermost one. "" without frames. A frame of another form is returned
  // unchanged, on one line.
  std::string line;  // "timm/layers/norm.py:89 in forward: x = F.layer_norm(x)"
  // If `line` is of a package: the program's own line from which the package was called; in a run
  // without own code the outermost frame outside of the framework. "" when `line` says all.
  std::string caller;  // "train.py:7 in main: loss = model(x)"
};
SourcePlace UserSourcePlace(const std::vector<std::string_view>& frames);

// The same on one line: "timm/layers/norm.py:89 in forward (from train.py:7): x = F.layer_norm(x)".
std::string UserSourceLine(const std::vector<std::string_view>& frames);

}  // namespace msprobe::dump
