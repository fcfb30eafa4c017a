#include "capture/values/weights.h"

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/py_ref.h"
#include "capture/values/value_writer.h"
#include "engine/base/text.h"
#include "engine/dump/write/entry_json.h"

namespace msprobe::capture {

void WeightsText::Add(std::string_view prefix, PyObject* model) {
  const Interposer::Pause pause;
  const Framework& framework = Framework::Get();
  AddNamed(prefix, model, framework.named_parameters);
  if (framework.named_buffers != nullptr) AddNamed(prefix, model, framework.named_buffers);
  ClearError();
}

void WeightsText::AddNamed(std::string_view prefix, PyObject* model, const char* method) {
  const PyRef pairs = PyRef::Steal(PyObject_CallMethod(model, method, nullptr));
  const PyRef iterator = pairs ? PyRef::Steal(PyObject_GetIter(pairs.get())) : PyRef();
  if (!iterator) return ClearError();
  while (const PyRef pair = PyRef::Steal(PyIter_Next(iterator.get()))) {
    PyObject *name, *tensor;
    if (!PyArg_ParseTuple(pair.get(), "OO", &name, &tensor)) break;
    if (text_.size() > 1) text_ += ',';
    text_ += '\n';
    AppendJsonString(&text_, std::string(prefix) + std::string(Utf8(name)));
    text_ += ": ";
    dump::AppendTensorJson(&text_, RecordTensor(tensor, ValueOptions(), {}, ""));
  }
  ClearError();
}

}  // namespace msprobe::capture
