// The function of a fuzz target, which gets `data` and `size`, its number of bytes.
//
//   FUZZ_TARGET(npy) {
//     return 0;
//   }
//
// libFuzzer's own name, in a program for each target; another name in `replay`, which has them all.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef MSPROBE_REPLAY
#define FUZZ_TARGET(name) extern "C" int Fuzz_##name(const uint8_t* data, size_t size)
#else
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#endif
