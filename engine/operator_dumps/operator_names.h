// What the name of a file says: "Conv2D.conv1.3.7.1697617551412398.output.0.npy" is output 0 of the
// operator Conv2D.conv1, executed by task 3 of stream 7.
//
//   // "run/Conv2D.conv1.output.0"
//   OperatorName("run/Conv2D.conv1.3.7.1697617551412398.output.0.npy").key;
#pragma once

#include <string>
#include <string_view>

namespace msprobe::operator_dumps {

struct OperatorName {
  // Parts that look like a time have ten digits or more; up to two numbers before it are the task
  // and the stream. A folder whose name is a time is left out, too.
  explicit OperatorName(std::string_view relative_path);

  // `a` is older than `b`; of the same time, in the order of the paths, numbers by value.
  static bool Before(const OperatorName& a, const OperatorName& b);

  std::string path;  // relative, as given
  std::string op;    // "Conv2D.conv1"
  std::string time;  // digits; "": none
  std::string key;   // equal in both runs
};

}  // namespace msprobe::operator_dumps
