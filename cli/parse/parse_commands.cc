#include "cli/parse/parse_commands.h"

#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <string>

#include "cli/parse/parse_tensors.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/pkl_trace.h"
#include "engine/dump/read/tag_folder.h"
#include "engine/operator_dumps/batch_compare.h"
#include "engine/operator_dumps/convert_files.h"
#include "engine/operator_dumps/operator_files.h"
#include "engine/operator_dumps/operator_names.h"

namespace msprobe::cli {
namespace {

namespace ops = operator_dumps;

void WriteLines(std::string_view text, Console& out) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out.Write(MakePrintable(text.substr(0, end)));
    out.Write("\n");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

Result<double> Limit(const std::string& text, std::string_view flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  return InvalidArgument().Expected("a number of 0 or more after {}"_t(flag)).Found(Excerpt(text));
}

class PrintTensor : public Verb {
 public:
  std::string_view name() const override { return "pt"; }
  Message summary() const override {
    return "print a tensor: its first elements, shape, dtype, maximum, minimum, mean"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("-n,--name", &path_, "a .npy or .pt file, or a dump file of CANN"_t)
        .TypeName("FILE")
        .Required();
    flags.Switch("-s,--save", &save_, "write all elements to FILE.txt"_t);
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const std::string text, DescribeTensorFile(path_, save_));
    WriteLines(text, out);
    return kExitOk;
  }

 private:
  std::string path_;
  bool save_ = false;
};

class CompareTensors : public Verb {
 public:
  std::string_view name() const override { return "cn"; }
  Message summary() const override { return "where two tensors differ"_t; }
  void AddFlags(Flags& flags) override {
    flags.Text("-m,--my_dump_path", &target_, "a .npy or .pt file"_t).TypeName("FILE").Required();
    flags.Text("-g,--golden_dump_path", &golden_, "the one to compare with"_t)
        .TypeName("FILE")
        .Required();
    flags.Number("-p,--print", &options_.lines, "lines in each of the two lists"_t).ShowDefault();
    flags.Text("--atol", &absolute_, "-al: wrong is |a - b| > al + rl |b|"_t).ShowDefault();
    flags.Text("--rtol", &relative_, std::string("-rl")).ShowDefault();
    flags.Switch("-s,--save", &options_.save, "write both tensors as text, FILE.txt"_t);
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(options_.absolute, Limit(absolute_, "-al"));
    MSPROBE_ASSIGN_OR_RETURN(options_.relative, Limit(relative_, "-rl"));
    bool close = false;
    MSPROBE_ASSIGN_OR_RETURN(const std::string text,
                             CompareTensorFiles(target_, golden_, options_, &close));
    WriteLines(text, out);
    return close ? kExitOk : kExitDiffers;
  }

 private:
  std::string target_, golden_, absolute_ = "0.001", relative_ = "0.001";
  TensorFileComparison options_;
};

class PrintLines : public Verb {
 public:
  std::string_view name() const override { return "pk"; }
  Message summary() const override {
    return "stacks and statistics of calls in a .pkl of ptdbg_ascend"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("-f,--file", &path_, "the .pkl file"_t).TypeName("FILE").Required();
    flags.Text("-n,--name", &prefix_, "the beginning of the names"_t).Required();
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const dump::PklTrace trace,
                             dump::TracePklFile(dump::ExistingTag(path_), prefix_));
    for (const auto& warning : trace.warnings) out.Warn("warning: {}"_t(Message(warning)));
    WriteLines(trace.text, out);
    return kExitOk;
  }

 private:
  std::string path_, prefix_;
};

// -asc and -cmp_path named a script of CANN, which did the work.
void AddScriptOfCann(Flags& flags, std::string* script) {
  flags.Text("--ascend_path", script, "-asc, -cmp_path: not needed any more; CANN is not used"_t);
}

void SayScriptIsNotNeeded(const std::string& script, Console& out) {
  if (!script.empty()) out.Warn("{} is not used: dumps are read without CANN"_t(script));
}

class CompareFolders : public Verb {
 public:
  std::string_view name() const override { return "vc"; }
  Message summary() const override {
    return "compare two folders of operator dumps, tensor by tensor, into a table"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("-m,--my_dump_path", &target_, "dumps of CANN, or .npy or .pt files"_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("-g,--golden_dump_path", &golden_, "the ones to compare with"_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("--output_path", &output_, "-out: the folder for the table"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    AddScriptOfCann(flags, &script_);
  }
  Result<int> Run(Console& out) override {
    SayScriptIsNotNeeded(script_, out);
    out.Progress("comparing {} with {}"_t(target_, golden_));
    MSPROBE_ASSIGN_OR_RETURN(const ops::BatchComparison both,
                             ops::CompareOperatorFolders(target_, golden_));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(output_));
    std::string path;
    for (std::time_t time = std::time(nullptr);; ++time) {  // two tables in one second
      path = JoinPath(output_, fmt::format("batch_compare_{}.csv", time));
      if (!Exists(path)) break;
    }
    MSPROBE_RETURN_IF_ERROR(ops::WriteBatchTable(both, path));
    if (!both.left_out.empty()) {
      out.Tell("{} files hold no tensors and are left out: {}"_t(
          both.left_out.size(), both.left_out[0] + (both.left_out.size() > 1 ? ", ..." : "")));
    }
    const auto pairs = static_cast<int64_t>(both.rows.size()) - both.unpaired;
    out.Tell("{} pairs: {} equal, {} differ, {} not compared; {} tensors without partner"_t(
        pairs, pairs - both.unequal - both.not_compared, both.unequal, both.not_compared,
        both.unpaired));
    out.Tell("written: {}"_t(path));
    const bool same = both.unequal + both.not_compared + both.unpaired == 0;
    return same ? kExitOk : kExitDiffers;
  }

 private:
  std::string target_, golden_, output_ = "parse_data/batch_compare_result", script_;
};

Result<std::vector<int64_t>> ShapeOf(const std::string& text) {
  std::vector<int64_t> shape;
  std::string_view rest = Trim(text);
  if (rest.size() > 1 && (rest.front() == '(' || rest.front() == '[')) {
    rest.remove_prefix(1);
    rest.remove_suffix(1);
  }
  if (rest.ends_with(',')) rest.remove_suffix(1);
  for (const std::string_view part : Split(rest, ',')) {
    const std::string_view digits = Trim(part);
    int64_t extent = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), extent);
    if (error != std::errc() || end != digits.data() + digits.size() || extent < 0) {
      return InvalidArgument().Expected("a shape such as 2,3,4,5 after -s"_t).Found(Excerpt(text));
    }
    shape.push_back(extent);
  }
  return shape;
}

Result<std::optional<AscendLayout>> LayoutOf(const std::string& text) {
  if (text.empty()) return std::optional<AscendLayout>();
  const std::optional<AscendLayout> layout = AscendLayoutFromName(text);
  if (layout) return layout;
  std::string names;
  for (int i = 0; i < kAscendLayoutCount; ++i) {
    if (i > 0) names += ", ";
    names += AscendLayoutName(static_cast<AscendLayout>(i));
  }
  return InvalidArgument().Expected("one of {}"_t(names)).Found(Excerpt(text));
}

// Where the tensors of a file go: below `output`, as the file lies below the folder that was named.
using FolderOf = std::string (*)(const std::string& relative);

std::string SameFolder(const std::string& relative) {
  return relative.find('/') == std::string::npos ? "" : DirectoryName(relative);
}

std::string FolderOfOperator(const std::string& relative) {
  const ops::OperatorName name(relative);
  const std::string folder = JoinPath(SameFolder(relative), name.op);
  return name.time.empty() ? folder : JoinPath(folder, name.time);
}

Result<int> Convert(const std::string& path, const std::string& output,
                    const ops::FileConversion& wanted, FolderOf folder_of, Console& out) {
  MSPROBE_ASSIGN_OR_RETURN(const ops::OperatorFolder found, ops::ListOperatorFiles(path));
  if (found.files.empty()) {
    return NotFound(path)
        .Expected("dump files of CANN, or .npy or .pt files"_t)
        .Found("{} other files"_t(found.others.size()));
  }
  const std::string root = IsDirectory(path) ? path : DirectoryName(path);
  int code = kExitOk;
  size_t done = 0;
  for (const std::string& file : found.files) {
    out.ProgressOf("converting"_t, done++, found.files.size());
    const std::string source = JoinPath(root, file);
    const std::string below = folder_of(file);
    const std::string folder = below.empty() ? output : JoinPath(output, below);
    const Result<ops::ConvertedFile> converted = ops::ConvertFile(source, folder, wanted);
    if (!converted.ok() && converted.status().code() == ErrorCode::kIo) return converted.status();
    if (!converted.ok()) {
      out.Error(converted.status());
      code = kExitError;
      continue;
    }
    out.Print("{}\n", MakePrintable(source));
    for (const std::string& each : converted->written) out.Tell("  {}"_t("written: {}"_t(each)));
    for (const auto& problem : converted->problems) out.Warn("not written: {}"_t(Message(problem)));
    if (!converted->problems.empty()) code = kExitError;
  }
  for (const std::string& other : found.others) out.Warn("{} holds no tensors: left out"_t(other));
  return code;
}

class ConvertDump : public Verb {
 public:
  std::string_view name() const override { return "dc"; }
  Message summary() const override {
    return "write the tensors of operator dumps as .npy or .pt, in another layout where -f is "
           "given"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("-n,--name", &path_, "a file, or a folder of them"_t).TypeName("PATH").Required();
    flags.Text("-f,--format", &to_,
               "the layout of the results: ND, NCHW, NHWC, HWCN, NC1HWC0, "
               "FRACTAL_Z, FRACTAL_NZ, NCDHW, NDC1HWC0"_t);
    flags.Text("-s,--shape", &shape_,
               "their shape, 2,3,4,5, where the dump does not state it without padding"_t);
    flags.Text("-l,--layout", &from_,
               "the layout of a .npy or .pt file, which does not state it"_t);
    flags.Text("-t,--type", &type_, "npy or pt"_t).OneOf({"npy", "pt"}).ShowDefault();
    flags.Text("--output_path", &output_, "-out: the folder for the results"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    AddScriptOfCann(flags, &script_);
  }
  Result<int> Run(Console& out) override {
    SayScriptIsNotNeeded(script_, out);
    ops::FileConversion wanted{.pt = type_ == "pt"};
    MSPROBE_ASSIGN_OR_RETURN(wanted.to, LayoutOf(to_));
    MSPROBE_ASSIGN_OR_RETURN(wanted.from, LayoutOf(from_));
    if (!shape_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(wanted.shape, ShapeOf(shape_));
    }
    if (!wanted.to && (wanted.from || !wanted.shape.empty()))
      return InvalidArgument("-s and -l need -f, the layout of the results"_t)
          .Hint(std::string("-f NCHW"));
    return Convert(path_, output_, wanted, SameFolder, out);
  }

 private:
  std::string path_, to_, from_, shape_, type_ = "npy", output_ = "parse_data/dump_convert",
                                         script_;
};

class ConvertFolder : public Verb {
 public:
  std::string_view name() const override { return "cad"; }
  Message summary() const override {
    return "write all tensors of a folder of operator dumps as .npy, in OPERATOR/TIME/"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("-m,--my_dump_path", &path_, "the dumps of CANN"_t).TypeName("FOLDER").Required();
    flags.Text("--output_path", &output_, "-out: the folder for the results"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    AddScriptOfCann(flags, &script_);
  }
  Result<int> Run(Console& out) override {
    SayScriptIsNotNeeded(script_, out);
    return Convert(path_, output_, {}, FolderOfOperator, out);
  }

 private:
  std::string path_, output_ = "parse_data/batch_dump_convert", script_;
};

}  // namespace

std::vector<std::unique_ptr<Verb>> ParseCommands() {
  std::vector<std::unique_ptr<Verb>> commands;
  commands.push_back(std::make_unique<PrintTensor>());
  commands.push_back(std::make_unique<CompareTensors>());
  commands.push_back(std::make_unique<PrintLines>());
  commands.push_back(std::make_unique<CompareFolders>());
  commands.push_back(std::make_unique<ConvertDump>());
  commands.push_back(std::make_unique<ConvertFolder>());
  return commands;
}

Result<int> ConvertOperatorDumps(const std::string& path, const std::string& type,
                                 const std::string& output, Console& out) {
  return Convert(path, output, {.pt = type == "pt"}, SameFolder, out);
}

}  // namespace msprobe::cli
