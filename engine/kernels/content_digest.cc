#include "engine/kernels/content_digest.h"

#include <cstring>

#include "engine/kernels/content_digest_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/content_digest.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

ContentDigest Digest(std::string_view bytes) {
#if HWY_TARGET == HWY_SCALAR
  return DigestContentScalar(bytes);
#else
  Hasher<true> hasher;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t n = bytes.size();
  for (; n >= kStripeBytes; n -= kStripeBytes, p += kStripeBytes) {
    PrefetchAhead(p);
    hasher.Stripe(p);
  }
  if (n > 0) {
    alignas(64) uint8_t tail[kStripeBytes] = {};
    std::memcpy(tail, p, n);
    hasher.Stripe(tail);
  }
  alignas(64) uint64_t sums[8];
  hasher.StoreSums(sums);
  return FinishDigest(sums, bytes.size());
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(Digest);

ContentDigest DigestContent(std::string_view bytes) { return HWY_DYNAMIC_DISPATCH(Digest)(bytes); }

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
