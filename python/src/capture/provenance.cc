#include "capture/provenance.h"

#include <Python.h>

#include <optional>

#include "capture/python/attributes.h"
#include "capture/python/framework.h"
#include "capture/python/py_ref.h"
#include "capture/values/generator_state.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/dump/write/provenance.h"
#include "engine/model/gradients_before.h"
#include "engine/model/precision_text.h"

namespace msprobe::capture {
namespace {

class JsonObject {
 public:
  void Text(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    Key(key);
    AppendJsonString(&json_, value);
  }
  void Plain(std::string_view key, const PyRef& value) {  // a number or boolean
    if (!value) return;
    Key(key);
    json_ += PyBool_Check(value.get()) ? (value.get() == Py_True ? "true" : "false")
                                       : StrOf(value.get());
  }
  void Json(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    Key(key);
    json_ += value;
  }
  std::string Finish() { return json_ + "}"; }

 private:
  void Key(std::string_view key) {
    if (json_.size() > 1) json_ += ", ";
    AppendJsonString(&json_, key);
    json_ += ": ";
  }
  std::string json_ = "{";
};

// "npu: Ascend910B" of a type of device; "npu" when it does not tell its name.
std::string NameOfDevice(const std::string& type) {
  const PyRef name = Call(Loaded(("torch." + type).c_str()), "get_device_name");
  return name ? type + ": " + StrOf(name.get()) : type;
}

// The accelerator that the process uses, else "cpu".
std::string DeviceInUse() {
  for (const char* name : {"npu", "cuda", "xpu"}) {
    const PyRef backend = Loaded((std::string("torch.") + name).c_str());
    // The modules of most devices have such an attribute.
    if (Attribute(backend, "_initialized").get() == Py_False) continue;
    if (backend && Call(backend, "is_initialized").get() == Py_True) return NameOfDevice(name);
  }
  return "cpu";
}

// The folder of the script that runs; the working directory without one.
std::string ScriptFolder() {
  const PyRef file = Attribute(Loaded("__main__"), "__file__");
  std::string folder = DirectoryName(file ? std::string(Utf8(file.get())) : std::string());
  if (folder.starts_with('/')) return folder;
  const PyRef os = Loaded("os");
  const PyRef here = Call(os, "getcwd");
  const std::string base = here ? std::string(Utf8(here.get())) : std::string(".");
  return folder.empty() ? base : JoinPath(base, folder);
}

void AddMindSpore(JsonObject* json) {
  const PyRef mindspore = Loaded("mindspore");
  const auto text = [&](const char* key, const PyRef& value) {
    if (value && value.get() != Py_None) json->Text(key, StrOf(value.get()));
  };
  // Not mindspore.get_context(), which takes 0.1 ms between the operators of a training.
  const PyRef binding = Loaded("mindspore._c_expression");
  const PyRef parameters = Attribute(binding, "ms_ctx_param");
  const PyRef context = Call(Attribute(binding, "MSContext"), "get_instance");
  const auto setting = [&](const char* name) {
    const PyRef parameter = Attribute(parameters, name);
    PyRef value =
        context && parameter
            ? PyRef::Steal(PyObject_CallMethod(context.get(), "get_param", "O", parameter.get()))
            : PyRef();
    ClearError();
    return value;
  };
  text("mindspore", Attribute(mindspore, "__version__"));
  text("numpy", Attribute(Loaded("numpy"), "__version__"));
  text("device", setting("device_target"));
  text("deterministic", setting("deterministic"));
  const PyRef mode = setting("mode");
  if (mode) json->Text("mode", PyLong_AsLong(mode.get()) == 0 ? "graph" : "pynative");
  ClearError();
  const PyRef seed = Call(mindspore, "get_seed");
  if (seed && seed.get() != Py_None) json->Plain("seed", seed);
}

void AddTorch(JsonObject* out, const std::string& device_type) {
  JsonObject& json = *out;
  const PyRef torch = Loaded("torch");
  const PyRef torch_version = Attribute(torch, "__version__");
  if (torch_version) json.Text("torch", StrOf(torch_version.get()));
  if (const PyRef numpy = Attribute(Loaded("numpy"), "__version__"))
    json.Text("numpy", StrOf(numpy.get()));
  json.Text("device", device_type.empty()    ? DeviceInUse()
                      : device_type == "cpu" ? device_type
                                             : NameOfDevice(device_type));
  json.Plain("threads", Call(torch, "get_num_threads"));
  json.Plain("deterministic", Call(torch, "are_deterministic_algorithms_enabled"));
  json.Plain("onednn", Call(Attribute(torch, "_C"), "_get_mkldnn_enabled"));
  const PyRef precision = Call(torch, "get_float32_matmul_precision");
  if (precision) json.Text("matmul_precision", StrOf(precision.get()));
  const PyRef cpu = Attribute(Attribute(torch, "backends"), "cpu");
  if (const PyRef capability = Call(cpu, "get_cpu_capability"))
    json.Text("cpu", StrOf(capability.get()));
  const PyRef generator = Attribute(torch, "default_generator");
  json.Plain("seed", Call(generator, "initial_seed"));
  std::string state;
  AppendGeneratorState(generator, &state);
  json.Text("random_state", state);
}

}  // namespace

std::string ProvenanceJson(const KnownOfRun& run) {
  JsonObject json;
  const std::string_view version = Py_GetVersion();
  json.Text("python", version.substr(0, version.find(' ')));
  Framework::Get().is_torch() ? AddTorch(&json, run.device_type) : AddMindSpore(&json);
  static const std::string revision = dump::GitRevision(ScriptFolder());
  json.Text("git", revision);
  if (run.gradients_before) json.Plain(kTellsGradientsBefore, PyRef::Borrow(Py_True));
  json.Text(kPrecision, run.precision);
  json.Json(dump::kParallel, run.parallel);
  return json.Finish();
}

}  // namespace msprobe::capture
