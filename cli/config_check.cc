#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/inputs/mapping_flags.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/checkpoint/compare_checkpoints.h"
#include "engine/compare/explain/summary.h"

namespace msprobe::cli {
namespace {

class ConfigCheck : public Verb {
 public:
  std::string_view name() const override { return "config_check"; }
  Message summary() const override { return "compare two checkpoints, parameter by parameter"_t; }

  void AddFlags(Flags& flags) override {
    flags
        .Texts("-c,--compare", &compare_,
               "two checkpoints: files (.pt, .bin, .safetensors), folders of shards, Megatron's "
               "iter_0000100, folders of torch.distributed.checkpoint"_t)
        .Values(2, 2)
        .TypeName("PATH PATH")
        .Common();
    flags
        .Text("-o,--output", &output_,
              "the JSON file with l2, cos, numel and shape of each parameter; must not exist"_t)
        .TypeName("FILE")
        .ShowDefault()
        .Common();
    AddExitCode(flags, &exit_code_);
    flags.Group("Names that differ on purpose"_t);
    names_.AddForParameters(flags);
    flags.Group("Of msprobe 26, not supported"_t);
    dump_flag_ = flags.Texts("-d,--dump", &dump_, "files with the settings of a training"_t)
                     .Values(0, Flag::kAnyNumber);
    flags.Texts("--verl-compare", &verl_, "two logs of veRL"_t).Values(2, 2);
    flags.Texts("--verl-verify", &verify_, "a log of veRL"_t).Values(1, 2);
    flags.Texts("--slime-compare", &slime_, "two logs of slime"_t).Values(2, 2);
  }

  Result<int> Run(Console& out) override {
    if (dump_flag_.given()) {
      return Unsupported("config_check -d packs the environment, packages and scripts of a run"_t)
          .Hint(
              "the header of a dump has versions, seeds, threads and weights, and compare names "
              "the ones that differ: msprobe compare NEW OLD"_t);
    }
    if (!verl_.empty() || !verify_.empty() || !slime_.empty())
      return Unsupported("logs of veRL and slime are not read"_t).Hint("diff the two logs"_t);
    if (compare_.size() != 2)
      return InvalidArgument("-c and two checkpoints are needed"_t)
          .Hint(std::string("msprobe config_check -c A B"));
    for (const std::string& path : compare_) {
      if (!path.ends_with(".zip")) continue;
      return Unsupported("{}: packs of settings (config_check -d) are not compared"_t(path))
          .Hint("unpack both and diff the folders"_t);
    }
    if (Exists(output_)) {
      return InvalidArgument("-o {} exists already"_t(output_))
          .Hint("name another file, or remove it"_t);
    }
    out.Progress("opening {}"_t(compare_[0]));
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint target,
                             checkpoint::Checkpoint::Open(compare_[0]));
    out.Progress("opening {}"_t(compare_[1]));
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint golden,
                             checkpoint::Checkpoint::Open(compare_[1]));
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::ParameterMapping names, names_.For(target));
    const Message label =
        "comparing {} with {} tensors"_t(target.tensors().size(), golden.tensors().size());
    compare::CompareOptions options;
    options.progress = [&](uint64_t done, uint64_t all) { out.ProgressOf(label, done, all); };
    const compare::Comparison c = checkpoint::CompareCheckpoints(target, golden, options, names);
    // What was found is printed even if the file cannot be written.
    out.Write(checkpoint::CheckpointReport(c));
    const std::string folder = DirectoryName(output_);
    if (!folder.empty()) MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(output_, checkpoint::SimilarityJson(c)));
    out.Write("\n");
    out.Tell("written: {}"_t(output_));
    return exit_code_ && !compare::Agrees(compare::Summarize(c).verdict) ? kExitDiffers : kExitOk;
  }

 private:
  std::vector<std::string> compare_, dump_, verl_, verify_, slime_;
  std::string output_ = "./ckpt_similarity.json";
  bool exit_code_ = false;
  MappingFlags names_;
  Flag dump_flag_;
};

}  // namespace

std::unique_ptr<Verb> MakeConfigCheckVerb() { return std::make_unique<ConfigCheck>(); }

}  // namespace msprobe::cli
