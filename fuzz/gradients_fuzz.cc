// Reads any bytes as two recordings of task grad_probe: the table of both, the file of booleans of
// parameter "a" (the target) and the archive of bits (the golden). If they can be read, they are
// compared and drawn.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/gradients/compare_gradients.h"
#include "engine/report_page/gradient_page.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

// The first two bytes 0x1e separate the table, the file of booleans and the archive.
FUZZ_TARGET(gradients) {
  static msprobe::MemoryFolder folder;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t first = std::min(all.find('\x1e'), size);
  const size_t second = std::min(all.find('\x1e', std::min(first + 1, size)), size);
  const std::string_view table = all.substr(0, first);
  folder.Set("target/grad_summary_3.csv", table);
  folder.Set("golden/grad_summary_3.csv", table);
  folder.Set("target/step3/a.npy",
             all.substr(std::min(first + 1, size), second - std::min(first + 1, second)));
  folder.Set("golden/grad_directions_3.npz", all.substr(std::min(second + 1, size)));
  const auto compared = msprobe::gradients::CompareGradients(
      folder.path() + "/target", folder.path() + "/golden", folder.path() + "/out");
  if (!compared.ok()) std::abort();  // damaged files are errors inside the result
  for (size_t row = 0; row < compared->all.parameters().size(); ++row) {
    const msprobe::gradients::Similarity& cell = compared->all.At(row, 0);
    if (cell.known() && (cell.same < 0 || cell.same > cell.count)) std::abort();
  }
  // The first piece is the page without its data: its script is the only one.
  const msprobe::report_page::PageText page =
      msprobe::report_page::GradientPage(*compared, "target", "golden");
  if (page[0].find("<script") != page[0].rfind("<script")) std::abort();
  return 0;
}
