#include "capture/values/hold_elements.h"

#include <utility>

#include "capture/values/tensor_access.h"

namespace msprobe::capture {

std::shared_ptr<HeldElements> HoldElements(const TensorAccess& access, DeviceReader* reader,
                                           LateTensors* needs) {
  std::shared_ptr<HeldElements> elements =
      HeldElements::Reserve(access.element_type(), access.shape());
  if (elements == nullptr) return elements;
  if (access.readable()) {
    elements->Take(access.view());
    return elements;
  }
  auto late = std::make_shared<LateTensor>();
  late->elements = elements;
  const int64_t ticket = reader->Ask(access.holder(), {.dtype = access.element_type(),
                                                       .shape = access.shape(),
                                                       .late = late,
                                                       .device = access.device()});
  if (ticket < 0) return nullptr;
  late->numbers.ticket = ticket;
  needs->push_back(std::move(late));
  return elements;
}

}  // namespace msprobe::capture
