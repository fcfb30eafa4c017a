#include "engine/replay/reproducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/writable_folder.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/source_line.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/formats/tensors/pt.h"
#include "engine/replay/input_numbers.h"

namespace msprobe::replay {

extern const char* const kReproducerScript;  // reproducer.py

namespace {

// Values that an operation takes where its dump has no statistics.
Domain DomainOf(std::string_view api) {
  const std::string_view base = api.substr(api.rfind('.') + 1);
  if (base == "log" || base == "log2" || base == "log10" || base == "rsqrt")
    return {.min = 0.1, .max = 4};
  if (base == "sqrt") return {.min = 0, .max = 4};
  return {};
}

// One code point of valid UTF-8, which is taken from the front of `text`.
uint32_t TakeCodePoint(std::string_view* text) {
  const auto first = static_cast<uint8_t>((*text)[0]);
  const int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  uint32_t code = more == 0 ? first : first & (0x3fu >> more);
  for (int i = 1; i <= more; ++i) code = code << 6 | (static_cast<uint8_t>((*text)[i]) & 0x3f);
  text->remove_prefix(static_cast<size_t>(more) + 1);
  return code;
}

class Writer {
 public:
  Writer(const Dump& dump, const ReproducerOptions& options, std::string_view api)
      : dump_(dump), options_(options), domain_(DomainOf(api)) {}

  // The folder for the files; they are written by Literal and announced to `files`.
  void SetFolder(std::string folder, NewFolder* files) {
    made_.folder = std::move(folder);
    files_ = files;
  }
  const Reproducer& made() const { return made_; }

  // The argument as a literal; writes the files of its tensors.
  Result<std::string> Literal(const Argument& argument) {
    if (argument.kind == Argument::Kind::kLeaf) return LeafLiteral(argument.leaf);
    const bool list = argument.kind == Argument::Kind::kList;
    std::string text = list ? "[" : "{";
    for (size_t i = 0; i < argument.values.size(); ++i) {
      if (i > 0) text += ", ";
      if (!list) text += PythonLiteral(argument.names[i]) + ": ";
      MSPROBE_ASSIGN_OR_RETURN(const std::string value, Literal(argument.values[i]));
      text += value;
    }
    return text + (list ? "]" : "}");
  }

 private:
  Result<std::string> LeafLiteral(int32_t index) {
    if (index < 0) return std::string("()");  // an empty list has no value in the dump
    const Leaf& leaf = dump_.leaves[static_cast<size_t>(index)];
    if (leaf.kind == LeafKind::kNone) return std::string("None");
    if (leaf.kind == LeafKind::kScalar) {
      return fmt::format("({}, {})", PythonLiteral(leaf.type.view()),
                         PythonLiteral(leaf.value.view()));
    }
    const std::optional<DType> dtype = leaf.dtype.dtype();
    if (!dtype) {
      return Unsupported("{}: elements of {}"_t(leaf.name.view(), Excerpt(leaf.dtype.view())));
    }
    const std::string file = fmt::format("{}.pt", made_.stored + made_.made);
    MSPROBE_RETURN_IF_ERROR(files_->Make(made_.folder));
    const std::string path = JoinPath(made_.folder, file);
    files_->Add(path);
    const bool stored = dump::HasTensorData(leaf) && options_.data != InputData::kMade;
    if (!stored && options_.data == InputData::kStored) {
      return InvalidArgument("{} has no stored elements"_t(leaf.name.view()))
          .Hint("record with task tensor, or --data_mode random_data"_t);
    }
    MSPROBE_RETURN_IF_ERROR(stored ? Copy(leaf, *dtype, path) : Make(index, path));
    ++(stored ? made_.stored : made_.made);
    return fmt::format("('tensor', '{}', '{}', {}, {})", file, DTypeShortName(*dtype),
                       ShapeText(leaf.shape.extents()),
                       leaf.requires_grad == "True" ? "True" : "False");
  }

  Status Copy(const Leaf& leaf, DType dtype, const std::string& path) const {
    MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile file, dump::ReadTensorData(dump_, leaf));
    const auto extents = leaf.shape.extents();
    if (file.dtype != dtype ||
        !std::equal(file.shape.begin(), file.shape.end(), extents.begin(), extents.end())) {
      return InvalidDump(leaf.name.view(), std::nullopt)
          .Expected("a file with {} {}"_t(DTypeShortName(dtype), leaf.shape.view()))
          .Found(fmt::format("{} {}", DTypeShortName(file.dtype), ShapeText(file.shape)));
    }
    return formats::WritePt(path, file.view());
  }

  Status Make(int32_t index, const std::string& path) const {
    const Leaf& leaf = dump_.leaves[static_cast<size_t>(index)];
    MSPROBE_ASSIGN_OR_RETURN(const InputNumbers wanted, InputNumbersOf(dump_, index, domain_));
    std::vector<std::byte> elements(wanted.bytes());
    MakeNumbers(wanted, SeedOf(leaf.name.view(), options_.seed), elements);
    const auto extents = leaf.shape.extents();
    const std::vector<int64_t> shape(extents.begin(), extents.end());
    return formats::WritePt(path, {.data = elements.data(),
                                   .dtype = wanted.dtype,
                                   .ndim = static_cast<int>(shape.size()),
                                   .shape = shape.data()});
  }

  const Dump& dump_;
  const ReproducerOptions& options_;
  Domain domain_;
  Reproducer made_;
  NewFolder* files_ = nullptr;
};

// Dtypes of the results, which show whether autocast was on.
std::string ResultDTypes(const Dump& dump, const Record& forward) {
  std::string text = "[";
  for (const Leaf& leaf : dump.LeavesOf(forward)) {
    if (leaf.slot != Slot::kOutput || leaf.kind != LeafKind::kTensor) continue;
    const std::optional<DType> dtype = leaf.dtype.dtype();
    if (text.size() > 1) text += ", ";
    text += dtype ? fmt::format("'{}'", DTypeShortName(*dtype)) : "''";
  }
  return text + "]";
}

Status Replace(std::string* script, std::string_view name, const std::string& value) {
  const std::string line = fmt::format("{} = {{}}  # replaced\n", name);
  const size_t at = script->find(line);
  if (at == std::string::npos) return Internal("reproducer.py has no line {}"_t(line));
  script->replace(at, line.size(), fmt::format("{} = {}\n", name, value));
  return Status::Ok();
}

std::string DataText(const Reproducer& made, uint64_t seed) {
  std::string text = fmt::format("{} stored tensors", made.stored);
  if (made.made > 0)
    text += fmt::format(", {} made from recorded statistics with seed {}", made.made, seed);
  return text;
}

}  // namespace

std::string PythonLiteral(std::string_view text) {
  std::string valid;
  AppendValidUtf8(&valid, text);
  std::string out = "'";
  for (std::string_view rest = valid; !rest.empty();) {
    const uint32_t code = TakeCodePoint(&rest);
    if (code == '\'' || code == '\\')
      out += fmt::format("\\{}", static_cast<char>(code));
    else if (code >= 0x20 && code < 0x7f)
      out += static_cast<char>(code);
    else
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
  }
  return out + "'";
}

Result<Reproducer> WriteReproducer(const Dump& dump, const RecordedCall& call,
                                   const std::string& folder, const ReproducerOptions& options) {
  if (!call.skip.empty())
    return Unsupported("{} is not executed again: {}"_t(call.name, call.skip));
  const Record& forward = dump.records[static_cast<size_t>(call.forward)];
  const bool backward = options.backward && call.backward >= 0;
  const std::string_view direction = backward ? "backward" : "forward";
  const std::string stem =
      JoinPath(folder, fmt::format("{}.{}.{}", forward.api.view(), forward.call, direction));
  NewFolder files;
  MSPROBE_RETURN_IF_ERROR(files.Make(folder));
  Writer writer(dump, options, forward.api.view());
  writer.SetFolder(stem, &files);
  const Arguments arguments = ArgumentsOf(dump, forward);
  MSPROBE_ASSIGN_OR_RETURN(const std::string positional, writer.Literal(arguments.positional));
  MSPROBE_ASSIGN_OR_RETURN(const std::string keywords, writer.Literal(arguments.keywords));
  std::string gradients = "None";
  if (backward) {
    const Record& record = dump.records[static_cast<size_t>(call.backward)];
    MSPROBE_ASSIGN_OR_RETURN(gradients, writer.Literal(ArgumentsOf(dump, record).positional));
  }
  std::string source;
  if (forward.stack >= 0)
    source = dump::UserSourceLine(dump.stacks[static_cast<size_t>(forward.stack)]);
  Reproducer made = writer.made();
  const std::string facts = fmt::format(
      "{{\n    'name': {},\n    'api': {},\n    'direction': '{}',\n    'source': {},\n"
      "    'data': '{}',\n    'iterations': {},\n    'positional': {},\n    'keywords': {},\n"
      "    'gradients': {},\n    'results': {},\n}}",
      PythonLiteral(call.name), PythonLiteral(forward.api.view()), direction, PythonLiteral(source),
      DataText(made, options.seed), options.iterations, positional, keywords, gradients,
      ResultDTypes(dump, forward));
  std::string script = kReproducerScript;
  MSPROBE_RETURN_IF_ERROR(Replace(&script, "LIMITS", options.limits));
  MSPROBE_RETURN_IF_ERROR(Replace(&script, "CALL", facts));
  made.script = stem + ".py";
  if (made.stored + made.made == 0) made.folder.clear();
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(made.script, script));
  files.Keep();
  return made;
}

}  // namespace msprobe::replay
