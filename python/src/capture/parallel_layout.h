// How the processes of this run are arranged, for the header of a dump
// (docs/reference/dump-format.md).
//
//   // {"groups": [...], "wrappers": [...]}; "": one process
//   std::string json = ParallelJson(models);
#pragma once

#include <Python.h>

#include <string>
#include <utility>
#include <vector>

namespace msprobe::capture {

// `models`: prefix of names, model. Only reads what is there: nothing is imported, nobody is waited
// for. Never leaves a Python error set.
std::string ParallelJson(const std::vector<std::pair<std::string, PyObject*>>& models);

}  // namespace msprobe::capture
