// The elements of a tensor as they are now, whatever the program does next.
//
//   LateTensors needs;
//   const auto elements = HoldElements(access, &reader, &needs);
//   // when all of `needs` have arrived
//   if (elements != nullptr) ComputeStats(elements->view());
#pragma once

#include <memory>

#include "capture/devices/device_reader.h"
#include "capture/devices/late_tensor.h"

namespace msprobe::capture {

class TensorAccess;

// Of the host at once; of a device with the tensor that is added to `needs`. Null: there is no
// room, or the device cannot be read so.
std::shared_ptr<HeldElements> HoldElements(const TensorAccess& access, DeviceReader* reader,
                                           LateTensors* needs);

}  // namespace msprobe::capture
