#include "engine/dump/read/unpack.h"

#include <string>
#include <vector>

#include "cli/verbs.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

class Unpack : public Verb {
 public:
  std::string_view name() const override { return "unpack"; }
  Message summary() const override { return "write the tensors of a pack as .pt and .npy files"_t; }
  void AddFlags(Flags& flags) override {
    flags
        .Text("path", &path_,
              "a pack (tensors.pack), a dump, or a folder of many steps and ranks"_t)
        .TypeName("PATH")
        .Required();
    flags.Text("-o,--output", &output_, "folder for the files (default: beside the pack)"_t)
        .TypeName("FOLDER");
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<dump::UnpackedTensors> all,
                             dump::UnpackTensors(path_, output_));
    for (const dump::UnpackedTensors& one : all) {
      out.Tell("{}: {} tensors, {} bytes"_t(one.pack, one.files, one.bytes));
      if (one.ignored_bytes > 0)
        out.Tell("missing: {} bytes of an unfinished tensor"_t(one.ignored_bytes));
      out.Tell("written: {}"_t(one.folder));
    }
    return kExitOk;
  }

 private:
  std::string path_, output_;
};

}  // namespace

std::unique_ptr<Verb> MakeUnpackVerb() { return std::make_unique<Unpack>(); }

}  // namespace msprobe::cli
