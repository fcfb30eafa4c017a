// The threads PyTorch computes with, lent to our loops. No OpenMP is linked: the runtime that is
// loaded already is found.
//
//   BorrowOpenMpTeam();   // after `import torch`; without an OpenMP runtime nothing changes
#pragma once

namespace msprobe::capture {

// Loops of ThreadPool::Default() run on the OpenMP team of the calling thread from now on, with as
// many threads as torch.set_num_threads says.
void BorrowOpenMpTeam();

}  // namespace msprobe::capture
