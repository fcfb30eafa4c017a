#include "engine/model/names.h"

#include <algorithm>
#include <iterator>

#include "engine/base/text.h"

namespace msprobe {
namespace {

// In the order of Task.
constexpr std::string_view kTaskNames[] = {"statistics",     "tensor",    "structure",
                                           "overflow_check", "nan_check", "grad_probe",
                                           "free_benchmark", "other task"};
// In the order of Level.
constexpr std::string_view kLevelNames[] = {"L0", "L1", "mix", "L2", "debug", ""};

// A call number: digits only, no leading zero, no overflow; -1 otherwise.
int64_t CallNumber(std::string_view text) {
  if (text.empty() || text.size() > 18 || (text.size() > 1 && text[0] == '0')) return -1;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

Direction DirectionOf(std::string_view word) {
  if (word == "forward") return Direction::kForward;
  if (word == "backward") return Direction::kBackward;
  if (word == "parameters_grad") return Direction::kParameterGrad;
  return Direction::kNone;
}

// Cuts the last dotted component off `head` and returns it; "" when there is no dot.
std::string_view CutLast(std::string_view* head) {
  const size_t dot = head->rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view last = head->substr(dot + 1);
  *head = head->substr(0, dot);
  return last;
}

}  // namespace

EntryName ParseEntryName(std::string_view name) {
  EntryName parsed{.api = name};
  parsed.is_module = name.starts_with("Module.") || name.starts_with("Cell.");
  std::string_view head = name;
  const std::string_view last = CutLast(&head);
  if (last.empty()) return parsed;

  // Module form: the direction stands before the number, or alone for the gradients of older
  // parameters_grad entries.
  if (last == "parameters_grad") {
    parsed.api = head;
    parsed.direction = Direction::kParameterGrad;
    parsed.is_module = true;
    return parsed;
  }
  std::string_view rest = head;
  const std::string_view before = CutLast(&rest);
  if (const int64_t call = CallNumber(last); call >= 0) {
    const Direction direction = DirectionOf(before);
    if (direction == Direction::kNone) return parsed;
    parsed.api = rest;
    parsed.call = call;
    parsed.direction = direction;
    parsed.is_module =
        true;  // also "<name>.<k>.forward.<n>" of the oldest module_dump, which has no prefix
    return parsed;
  }

  // API form and debug saves: the number stands before the word.
  const Direction direction = DirectionOf(last);
  if (direction == Direction::kNone && last != "debug") return parsed;
  parsed.direction = direction;
  parsed.is_debug = last == "debug";
  parsed.api = head;
  if (const int64_t call = CallNumber(before); call >= 0) {
    parsed.api = rest;
    parsed.call = call;
  }
  return parsed;
}

std::string ComposeEntryName(std::string_view stem, int64_t call, std::string_view direction,
                             bool is_module) {
  std::string name(stem);
  if (is_module) {
    name += direction;
    name += '.';
    AppendInteger(&name, call);
  } else {
    AppendInteger(&name, call);
    name += '.';
    name += direction;
  }
  return name;
}

std::string ModuleForPeople(std::string_view name) {
  const EntryName parsed = ParseEntryName(name);
  std::string_view path = parsed.api;
  if (!path.starts_with("Module.") && !path.starts_with("Cell.")) return "";
  path.remove_prefix(path.find('.') + 1);
  const std::string_view type = CutLast(&path);
  if (type.empty()) return "";
  std::string text(path);
  ((text += " (") += type) += ')';
  return text;
}

std::string_view WithoutWrappers(std::string_view name, std::string* room) {
  // Each ends in "_mod" or "_module".
  constexpr std::string_view kParts[] = {"_orig_mod", "_fsdp_wrapped_module",
                                         "_checkpoint_wrapped_module"};
  const auto is_wrapper = [&](std::string_view part) {
    return std::find(std::begin(kParts), std::end(kParts), part) != std::end(kParts);
  };
  size_t prefix = 0;
  for (const std::string_view word : {"Module.", "Cell."}) {
    if (name.starts_with(word)) prefix = word.size();
  }
  const bool in_front = name.substr(prefix).starts_with("module.");
  // Most names have no wrapper.
  if (!in_front && name.find("_mod") == name.npos) return name;
  room->assign(name.substr(0, prefix));
  std::string_view rest = name.substr(prefix);
  bool front = true;  // only wrappers so far
  while (!rest.empty()) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    rest.remove_prefix(std::min(dot + 1, rest.size()));
    // The last part is the class of a module or the name of a parameter.
    if (!rest.empty() && (is_wrapper(part) || (front && part == "module"))) continue;
    front = false;
    *room += part;
    if (!rest.empty()) *room += '.';
  }
  return *room;
}

std::string ParameterName(std::string_view module, std::string_view parameter) {
  std::string room;
  std::string_view path = WithoutWrappers(module, &room);
  path.remove_prefix(std::min(path.size(), path.find('.') + 1));
  const size_t dot = path.rfind('.');
  if (dot == path.npos) return std::string(parameter);
  return std::string(path.substr(0, dot)).append(".").append(parameter);
}

bool ReturnsUnwrittenMemory(std::string_view function) {
  constexpr std::string_view kNames[] = {
      "empty",     "empty_like",        "empty_strided",    "empty_permuted",
      "new_empty", "new_empty_strided", "empty_with_format"};
  return std::find(std::begin(kNames), std::end(kNames), function) != std::end(kNames);
}

bool DrawsRandomNumbers(std::string_view function) {
  constexpr std::string_view kParts[] = {"dropout",     "rand",   "bernoulli",
                                         "multinomial", "gumbel", "poisson"};
  constexpr std::string_view kNames[] = {"normal",    "uniform",    "exponential", "cauchy",
                                         "geometric", "log_normal", "rrelu"};
  std::string lower = Lower(function);
  while (lower.ends_with('_')) lower.pop_back();
  const auto mentioned = [&](std::string_view part) { return lower.find(part) != lower.npos; };
  return std::any_of(std::begin(kParts), std::end(kParts), mentioned) ||
         std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

bool MayDrawRandomNumbers(std::string_view function) {
  constexpr std::string_view kNames[] = {"scaled_dot_product_attention",
                                         "multi_head_attention_forward",
                                         "lstm",
                                         "gru",
                                         "rnn_tanh",
                                         "rnn_relu"};
  return DrawsRandomNumbers(function) ||
         std::find(std::begin(kNames), std::end(kNames), function) != std::end(kNames);
}

bool WritesWholeTensor(std::string_view function) {
  constexpr std::string_view kNames[] = {"copy_",    "fill_",       "zero_",      "normal_",
                                         "uniform_", "random_",     "bernoulli_", "exponential_",
                                         "cauchy_",  "log_normal_", "geometric_"};
  return std::find(std::begin(kNames), std::end(kNames), function) != std::end(kNames);
}

std::string_view TaskName(Task task) { return kTaskNames[static_cast<size_t>(task)]; }

Task TaskNamed(std::string_view word) {
  const auto* const found = std::find(std::begin(kTaskNames), std::end(kTaskNames), word);
  return found == std::end(kTaskNames) ? Task::kOther
                                       : static_cast<Task>(found - std::begin(kTaskNames));
}

std::string_view LevelName(Level level) { return kLevelNames[static_cast<size_t>(level)]; }

Level LevelNamed(std::string_view word) {
  const auto* const found = std::find(std::begin(kLevelNames), std::end(kLevelNames), word);
  return found == std::end(kLevelNames) ? Level::kOther
                                        : static_cast<Level>(found - std::begin(kLevelNames));
}

int64_t NumberAfter(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return -1;
  return CallNumber(text.substr(prefix.size()));
}

namespace {

// The limit of file systems, 255, less the ending of a temporary file (".<pid>.<number>.part").
constexpr size_t kMaxFileNameBytes = 220;

}  // namespace

std::string SafeFileName(std::string_view text, std::string_view extension) {
  std::string name;
  for (const char c : text)
    name += c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  const bool too_long = name.size() + extension.size() > kMaxFileNameBytes;
  if (too_long || name != text) {         // two texts, two names
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string head;
    AppendHex(&head, hash, 16);
    head += '_';
    const size_t room = kMaxFileNameBytes - extension.size() - head.size();
    size_t begin = name.size() > room ? name.size() - room : 0;
    while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;  // whole characters
    name = head + name.substr(begin);
  }
  name += extension;
  return name;
}

}  // namespace msprobe
