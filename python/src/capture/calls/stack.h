// The Python call stack of a record. It is walked in C++, kept once for all equal stacks (compared
// by code object and instruction), and formatted once.
//
//   int64_t number = stacks.Intern(&is_new);   // a few hundred nanoseconds for a known stack
//   if (is_new) frames = stacks.Format();      // "File train.py, line 3, in forward, \n y = f(x)"
#pragma once

#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

class StackTable {
 public:
  // Frames of files below this directory are ours and are left out.
  void HideDirectory(std::string directory) { hidden_ = std::move(directory); }
  // The code object of a stub (code_stub.h): its frames are left out as well.
  void HideCode(PyObject* code) { hidden_code_.insert(code); }
  // Leaves out the functions of torch.nn.Module that run between a call of a module and its
  // forward(): they are the same for each call. Never leaves a Python error set.
  void HideModuleCalls();

  // Whether the code that runs now is a compiler's, or was made by one: a wrapper that PyTorch (AOT
  // autograd) puts around compiled code, Inductor while it compiles, and code that Inductor made.
  // The program has not called it.
  bool InCompiledCode();

  // Calls that come from this code belong to `region` ("optimizer"), unless a region nearer to the
  // call has a name. A region is the parent of calls that no module encloses.
  void NameRegion(PyObject* code, std::string region) { regions_[code] = std::move(region); }
  // The region of the stack of this number; "": none.
  const std::string& Region(int64_t number) const {
    return region_of_[static_cast<size_t>(number)];
  }

  // Number of the current stack. Equal stacks have equal numbers, which begin at 0. `*is_new`: the
  // stack has got its number by this call.
  int64_t Intern(bool* is_new);
  // The frames of the stack that Intern saw last, or of the stack of this number; innermost first.
  std::vector<std::string> Format();
  std::vector<std::string> Format(int64_t number);

 private:
  struct Site {
    PyCodeObject* code;
    int instruction;
    bool operator==(const Site&) const = default;
  };
  struct Known {
    std::vector<Site> sites;
    int64_t number;
  };
  struct Kind {
    bool hidden, compiled_wrapper, inductor;
  };
  const Kind& KindOf(PyCodeObject* code);
  const Kind& NewKindOf(PyCodeObject* code);  // slower: of a code object that was not met lately
  std::string FindRegion() const;
  std::vector<std::string> FormatSites(std::vector<Site> sites);
  const std::string& FormatSite(const Site& site);

  std::string hidden_;
  std::unordered_set<PyObject*> hidden_code_;
  std::unordered_map<PyObject*, std::string> regions_;  // by code object; these are never freed
  std::vector<std::string> region_of_;                  // by number
  std::unordered_map<PyCodeObject*, Kind> kinds_;
  static constexpr size_t kRecent = 64;
  std::array<std::pair<PyCodeObject*, const Kind*>, kRecent> recent_{};  // into kinds_
  std::unordered_multimap<uint64_t, Known> known_;
  std::unordered_map<PyCodeObject*, PyRef>
      codes_;  // keeps them alive, so that no address is reused
  std::map<std::pair<PyCodeObject*, int>, std::string> texts_;
  std::vector<Site> current_;
  std::vector<const std::vector<Site>*> by_number_;  // into known_
  int64_t next_ = 0;
};

}  // namespace msprobe::capture
