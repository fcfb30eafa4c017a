// Where the dumps of tests/data/dumps are unpacked, for the files that CMakeLists.txt names.
//
//   ReadDump(kDumps + "/26.2.0/mix_statistics/base");
#pragma once

#include <string>

namespace msprobe::dump {

inline const std::string kDumps = MSPROBE_RECORDED "/dumps";

}  // namespace msprobe::dump
