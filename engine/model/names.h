// Parses entry names of every generation, and composes ours.
//
//   ParseEntryName("Module.fc.Linear.forward.0");    // "Module.fc.Linear", 0, forward, a module
//   ParseEntryName("Functional.linear.3.backward");  // "Functional.linear", 3, backward
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/model/table.h"

namespace msprobe {

struct EntryName {
  std::string_view api;  // a view into the name; the whole name when its form is unknown
  int64_t call = -1;     // call number; -1: the name has none
  Direction direction = Direction::kNone;  // kNone: a debug save, or an unknown form
  bool is_module = false;
  bool is_debug = false;  // "<name>.<n>.debug"
};

// Forms: "<Prefix>.<api>.<n>.forward|backward", "<path>.<Class>.forward|backward.<n>",
// "<path>.<Class>.parameters_grad[.<n>]", "<name>.<n>.debug". Of any other name, `api` is the whole
// name.
EntryName ParseEntryName(std::string_view name);

// The inverse. `stem` ends with its dot ("Functional.linear."). The number of a module call comes
// last.
std::string ComposeEntryName(std::string_view stem, int64_t call, std::string_view direction,
                             bool is_module);

// "layers.3.mlp (LlamaMLP)" of "Module.layers.3.mlp.LlamaMLP.forward.0", the name of a module's
// call, and of "Cell.layers.3.mlp.LlamaMLP"; "" of any other name.
std::string ModuleForPeople(std::string_view name);

// A file name made of `text`, at most 220 bytes: '/' and control characters become '_', of a longer
// text the end is kept. A name that had to be changed gets a hash in front, so that different texts
// have different names.
std::string SafeFileName(std::string_view text, std::string_view extension);

// The name of a module or parameter without the parts that wrappers add: "module." in front
// (DataParallel, DistributedDataParallel), "_orig_mod" (torch.compile), "_fsdp_wrapped_module",
// "_checkpoint_wrapped_module". A prefix "Module." or "Cell." stays. The result is a view of `name`
// or of `*room`.
//
//   // "Module.layers.0.fc.Linear"
//   WithoutWrappers("Module.module.layers.0._orig_mod.fc.Linear", &room);
std::string_view WithoutWrappers(std::string_view name, std::string* room);

// The name of a module's parameter in its model, without wrappers: "layers.0.fc.weight" of
// "Module.layers.0.fc.Linear" and "weight".
std::string ParameterName(std::string_view module, std::string_view parameter);

// Whether a function ("empty_like", without prefix) returns memory that is not written yet.
bool ReturnsUnwrittenMemory(std::string_view function);

// Whether a function ("dropout", "normal_", without prefix) or a module ("Dropout") draws random
// numbers, if its arguments do not say otherwise.
bool DrawsRandomNumbers(std::string_view function);
// The same, and functions that draw when an argument says so: attention, recurrent networks.
bool MayDrawRandomNumbers(std::string_view function);

// Whether a method ("copy_") writes every element of the tensor that it is called on.
bool WritesWholeTensor(std::string_view function);

// As spelled in config.json and dump.json; kOther is "other task", and what any other word names.
std::string_view TaskName(Task task);
Task TaskNamed(std::string_view word);
// The same for levels; kOther is "", and what any other word names.
std::string_view LevelName(Level level);
Level LevelNamed(std::string_view word);

// "step12" with prefix "step" is 12; "rank" alone, "rank01" and "rank-1" are -1.
int64_t NumberAfter(std::string_view text, std::string_view prefix);

}  // namespace msprobe
