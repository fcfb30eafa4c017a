// The Python call stack of a record: walked natively, interned by (code, instruction), formatted
// once.
//
//   int64_t number = stacks.Intern(&is_new);   // a few hundred nanoseconds when seen before
//   if (is_new) frames = stacks.Format();      // "File train.py, line 3, in forward, \n y = f(x)"
#pragma once

#include <Python.h>

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
  // Frames of files below this directory are ours and left out.
  void HideDirectory(std::string directory) { hidden_ = std::move(directory); }
  // A code object put in place of an observed function's: not a frame of the user's either.
  void HideCode(PyObject* code) { hidden_code_.insert(code); }
  // The functions of torch.nn.Module between a call of a module and its forward(): the same frames
  // each time. Never leaves a Python error behind.
  void HideModuleCalls();

  // Whether what runs now was put around compiled code by PyTorch (AOT autograd): the program has
  // not called it.
  bool InCompiledWrapper();

  // Calls below this code belong to `region` ("optimizer"), unless another one is nearer.
  void NameRegion(PyObject* code, std::string region) { regions_[code] = std::move(region); }
  // Of a stack by its number; "": none.
  const std::string& Region(int64_t number) const {
    return region_of_[static_cast<size_t>(number)];
  }

  // Number of the current stack: equal stacks, equal numbers, from 0 on. `*is_new` tells that
  // nobody asked before.
  int64_t Intern(bool* is_new);
  // Frames of the stack that Intern saw last, or of one that it gave a number.
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
    bool hidden, compiled_wrapper;
  };
  const Kind& KindOf(PyCodeObject* code);
  std::string FindRegion() const;
  std::vector<std::string> FormatSites(std::vector<Site> sites);
  const std::string& FormatSite(const Site& site);

  std::string hidden_;
  std::unordered_set<PyObject*> hidden_code_;
  std::unordered_map<PyObject*, std::string> regions_;  // by code object, which lives for ever
  std::vector<std::string> region_of_;                  // by number
  std::unordered_map<PyCodeObject*, Kind> kinds_;
  std::unordered_multimap<uint64_t, Known> known_;
  std::unordered_map<PyCodeObject*, PyRef> codes_;  // keeps addresses from being used again
  std::map<std::pair<PyCodeObject*, int>, std::string> texts_;
  std::vector<Site> current_;
  std::vector<const std::vector<Site>*> by_number_;  // into known_
  int64_t next_ = 0;
};

}  // namespace msprobe::capture
