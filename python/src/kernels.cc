#include <nanobind/stl/string.h>

#include "bindings.h"
#include "convert.h"
#include "engine/base/threads.h"
#include "engine/kernels/diff.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/stats.h"

namespace msprobe::python {
namespace {

constexpr char kComputeStatsDoc[] = R"(compute_stats(tensor, threads=False) -> Stats

Max, min, mean, L2 norm, counts and fingerprint of a torch tensor or NumPy array of any shape and dtype, in one pass, sums in double.

    >>> compute_stats(np.float32([3, 4])).norm
    5.0)";

constexpr char kComputeDiffDoc[] = R"(compute_diff(target, golden, threads=False) -> Diff

How far `target` is from `golden`: two arrays of equal element count, any two dtypes. Raises UsageError when the counts differ.

    >>> compute_diff(np.float32([1, 2]), np.float32([1, 2.5])).max_abs_error
    0.5)";

constexpr char kCrc32Doc[] = R"(crc32(tensor) -> int

CRC-32 of the element bytes in logical order; what dumps store under "md5".)";

ThreadPool* Pool(bool threads) { return threads ? &ThreadPool::Default() : nullptr; }

kernels::Stats PyComputeStats(nb::handle tensor, bool threads) {
  const ArrayArgument array(tensor);
  nb::gil_scoped_release release;
  return kernels::ComputeStats(array.view(), Pool(threads));
}

kernels::Diff PyComputeDiff(nb::handle target, nb::handle golden, bool threads) {
  const ArrayArgument t(target), g(golden);
  Result<kernels::Diff> diff = [&] {
    nb::gil_scoped_release release;
    return kernels::ComputeDiff(t.view(), g.view(), Pool(threads));
  }();
  return ValueOrRaise(std::move(diff));
}

uint32_t PyCrc32(nb::handle tensor) {
  const ArrayArgument array(tensor);
  nb::gil_scoped_release release;
  return kernels::Crc32(array.view());
}

}  // namespace

void BindKernels(nb::module_& m) {
  nb::class_<kernels::Stats>(m, "Stats", "Result of compute_stats.")
      .def_ro("count", &kernels::Stats::count)
      .def_ro("nan", &kernels::Stats::nan)
      .def_ro("pos_inf", &kernels::Stats::pos_inf)
      .def_ro("neg_inf", &kernels::Stats::neg_inf)
      .def_ro("zero", &kernels::Stats::zero)
      .def_ro("max", &kernels::Stats::max)
      .def_ro("min", &kernels::Stats::min)
      .def_ro("mean", &kernels::Stats::mean)
      .def_ro("norm", &kernels::Stats::norm)
      .def_ro("int_max", &kernels::Stats::int_max)
      .def_ro("int_min", &kernels::Stats::int_min)
      .def_ro("fingerprint", &kernels::Stats::fingerprint);
  nb::class_<kernels::Diff>(m, "Diff",
                            "Result of compute_diff; fields as in engine/kernels/diff.h.")
      .def_ro("count", &kernels::Diff::count)
      .def_ro("unequal", &kernels::Diff::unequal)
      .def_ro("nonfinite_target", &kernels::Diff::nonfinite_target)
      .def_ro("nonfinite_golden", &kernels::Diff::nonfinite_golden)
      .def_ro("nonfinite_mismatch", &kernels::Diff::nonfinite_mismatch)
      .def_ro("nonfinite_matched", &kernels::Diff::nonfinite_matched)
      .def_ro("cosine", &kernels::Diff::cosine)
      .def_ro("euclidean", &kernels::Diff::euclidean)
      .def_ro("relative_l2", &kernels::Diff::relative_l2)
      .def_ro("max_abs_error", &kernels::Diff::max_abs_error)
      .def_ro("max_rel_error", &kernels::Diff::max_rel_error)
      .def_ro("ratio_within_1e3", &kernels::Diff::ratio_within_1e3)
      .def_ro("ratio_within_5e3", &kernels::Diff::ratio_within_5e3)
      .def_ro("rmse", &kernels::Diff::rmse)
      .def_ro("mape", &kernels::Diff::mape)
      .def_ro("max_ulp", &kernels::Diff::max_ulp)
      .def_ro("first_index", &kernels::Diff::first_index)
      .def_ro("worst_index", &kernels::Diff::worst_index)
      .def_ro("worst_target", &kernels::Diff::worst_target)
      .def_ro("worst_golden", &kernels::Diff::worst_golden);
  using namespace nb::literals;
  m.def("compute_stats", &PyComputeStats, "tensor"_a, "threads"_a = false, kComputeStatsDoc);
  m.def("compute_diff", &PyComputeDiff, "target"_a, "golden"_a, "threads"_a = false,
        kComputeDiffDoc);
  m.def("crc32", &PyCrc32, "tensor"_a, kCrc32Doc);
}

}  // namespace msprobe::python
