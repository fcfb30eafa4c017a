#include "capture/calls/stack.h"

#include <fmt/format.h>
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#include <internal/pycore_frame.h>
#endif

#include "capture/calls/call_place.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMaxFrames = 256;

// The frames of this thread, innermost first.
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
// Read where the interpreter keeps them. The functions of the C API make a frame object for each
// frame that has none: every recorded call would leave some to be freed. Other versions have
// another layout.
class Frames {
 public:
  Frames() { Set(PyThreadState_Get()->cframe->current_frame); }
  explicit operator bool() const { return frame_ != nullptr; }
  void Next() { Set(frame_->previous); }
  PyCodeObject* code() const { return frame_->f_code; }
  int instruction() const {
    const int last = _PyInterpreterFrame_LASTI(frame_);
    return last < 0 ? -1 : last * static_cast<int>(sizeof(_Py_CODEUNIT));
  }

 private:
  void Set(_PyInterpreterFrame* frame) {
    while (frame != nullptr && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
    frame_ = frame;
  }
  _PyInterpreterFrame* frame_;
};
#else
class Frames {
 public:
  Frames() { Set(PyThreadState_GetFrame(PyThreadState_Get())); }
  explicit operator bool() const { return static_cast<bool>(frame_); }
  void Next() { Set(PyFrame_GetBack(frame())); }
  PyCodeObject* code() const { return reinterpret_cast<PyCodeObject*>(code_.get()); }
  int instruction() const {
#if PY_VERSION_HEX >= 0x030b0000
    return PyFrame_GetLasti(frame());
#else
    return frame()->f_lasti;
#endif
  }

 private:
  PyFrameObject* frame() const { return reinterpret_cast<PyFrameObject*>(frame_.get()); }
  void Set(PyFrameObject* frame) {
    frame_ = PyRef::Steal(reinterpret_cast<PyObject*>(frame));
    code_ = PyRef::Steal(frame ? reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)) : nullptr);
  }
  PyRef frame_, code_;
};
#endif

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value;
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

// The text of a line through Python's linecache, which also knows notebooks and zipped modules; ""
// when there is none.
std::string SourceLine(PyObject* file, int line) {
  PyRef linecache = PyRef::Steal(PyImport_ImportModule("linecache"));
  PyRef text = linecache
                   ? PyRef::Steal(PyObject_CallMethod(linecache.get(), "getline", "Oi", file, line))
                   : PyRef();
  if (!text) {
    ClearError();
    return {};
  }
  std::string_view source = Utf8(text.get());
  const size_t first = source.find_first_not_of(" \t\r\n\f");
  if (first == std::string_view::npos) return {};
  return std::string(source.substr(first, source.find_last_not_of(" \t\r\n\f") - first + 1));
}

}  // namespace

const StackTable::Kind& StackTable::KindOf(PyCodeObject* code) {
  // Nothing is ever taken out of kinds_, and codes_ keeps its code objects alive.
  auto& [recent, kind] =
      recent_[reinterpret_cast<uintptr_t>(code) / alignof(max_align_t) % kRecent];
  if (recent != code) {
    kind = &NewKindOf(code);
    recent = code;
  }
  return *kind;
}

const StackTable::Kind& StackTable::NewKindOf(PyCodeObject* code) {
  const auto [it, inserted] = kinds_.try_emplace(code);
  if (inserted) {
    const std::string_view file = Utf8(code->co_filename);
    it->second = {.hidden = hidden_code_.count(reinterpret_cast<PyObject*>(code)) > 0 ||
                            (!hidden_.empty() && file.substr(0, hidden_.size()) == hidden_),
                  // Code that is generated at run time has this folder in its file name as well.
                  .compiled_wrapper = file.find("/torch/_functorch/_aot_autograd/") != file.npos,
                  .inductor = file.find("/torch/_inductor/") != file.npos};
    codes_.emplace(code, PyRef::Borrow(reinterpret_cast<PyObject*>(code)));
  }
  return it->second;
}

bool StackTable::InCompiledCode() {
  if (!compilers_seen) return false;
  Frames frames;
  while (frames && KindOf(frames.code()).hidden) frames.Next();
  if (frames && KindOf(frames.code()).compiled_wrapper) return true;
  // Inductor calls functions of other modules while it compiles, and the code that it makes lies in
  // files of any name: a frame of its own is around both. Code after a break of the graph has none.
  for (size_t depth = 0; frames && depth < kMaxFrames; frames.Next(), ++depth) {
    if (KindOf(frames.code()).inductor) return true;
  }
  return false;
}

void StackTable::HideModuleCalls() {
  const PyRef nn = PyRef::Steal(PyImport_ImportModule("torch.nn"));
  const PyRef type = nn ? PyRef::Steal(PyObject_GetAttrString(nn.get(), "Module")) : PyRef();
  const auto hide = [&](PyObject* code) {
    HideCode(code);
    codes_.emplace(reinterpret_cast<PyCodeObject*>(code), PyRef::Borrow(code));
  };
  for (const char* name : {"_wrapped_call_impl", "_call_impl"}) {
    const PyRef function = type ? PyRef::Steal(PyObject_GetAttrString(type.get(), name)) : PyRef();
    if (!function || !PyFunction_Check(function.get())) continue;  // PyTorch 1 has one of the two
    PyObject* const code = PyFunction_GET_CODE(function.get());
    hide(code);
    const PyRef constants = PyRef::Steal(PyObject_GetAttrString(code, "co_consts"));
    if (!constants || !PyTuple_Check(constants.get())) continue;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants.get()); ++i) {
      PyObject* const inner = PyTuple_GET_ITEM(constants.get(), i);
      if (PyCode_Check(inner)) hide(inner);  // the inner function that runs forward() with hooks
    }
  }
  PyErr_Clear();
}

int64_t StackTable::Intern(bool* is_new) {
  current_.clear();
  uint64_t hash = 0;
  for (Frames frames; frames && current_.size() < kMaxFrames; frames.Next()) {
    PyCodeObject* const code = frames.code();  // the frame, or codes_, keeps it alive
    if (KindOf(code).hidden) continue;
    const Site site{code, frames.instruction()};
    current_.push_back(site);
    hash = Mix(hash, reinterpret_cast<uintptr_t>(code));
    hash = Mix(hash, static_cast<uint64_t>(site.instruction));
  }
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (it->second.sites == current_) {
      *is_new = false;
      return it->second.number;
    }
  }
  *is_new = true;
  by_number_.push_back(&known_.emplace(hash, Known{current_, next_})->second.sites);
  region_of_.push_back(FindRegion());
  return next_++;
}

std::string StackTable::FindRegion() const {
  for (const Site& site : current_) {
    const auto it = regions_.find(reinterpret_cast<PyObject*>(site.code));
    if (it != regions_.end()) return it->second;
  }
  return {};
}

const std::string& StackTable::FormatSite(const Site& site) {
  const std::pair<PyCodeObject*, int> key{site.code, site.instruction};
  auto it = texts_.find(key);
  if (it == texts_.end()) {
    std::string text;
    const int line = PyCode_Addr2Line(site.code, site.instruction);
    const std::string source = SourceLine(site.code->co_filename, line);
    if (!source.empty()) {
      text = fmt::format("File {}, line {}, in {}, \n {}", Utf8(site.code->co_filename), line,
                         Utf8(site.code->co_name), source);
    }
    it = texts_.try_emplace(key, std::move(text)).first;
  }
  return it->second;
}

std::vector<std::string> StackTable::Format() { return FormatSites(current_); }

std::vector<std::string> StackTable::Format(int64_t number) {
  return FormatSites(*by_number_[static_cast<size_t>(number)]);
}

std::vector<std::string> StackTable::FormatSites(std::vector<Site> sites) {
  // A copy, because other threads may run while a source file is read, and add stacks.
  std::vector<std::string> frames;
  for (const Site& site : sites) {
    if (const std::string& text = FormatSite(site); !text.empty()) frames.push_back(text);
  }
  return frames;
}

}  // namespace msprobe::capture
