// Lets our loops run on the threads that PyTorch computes with. No OpenMP library is linked: the
// OpenMP runtime that is loaded already is looked up.
//
//   BorrowOpenMpTeam();   // after `import torch`; without an OpenMP runtime nothing changes
#pragma once

namespace msprobe::capture {

// Loops of ThreadPool::Default() run on the OpenMP team of the calling thread from now on, with as
// many threads as torch.set_num_threads says.
void BorrowOpenMpTeam();

}  // namespace msprobe::capture
