#include "alias.h"

#include <c10/core/TensorImpl.h>

#include "device.h"
#include "memory.h"

namespace emu {

at::Tensor tensor_over(const c10::Storage& storage, c10::Device device, const at::Tensor& like) {
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  auto* implementation = tensor.unsafeGetTensorImpl();
  implementation->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) implementation->_set_conj(true);
  if (like.is_neg()) implementation->_set_neg(true);
  return tensor;
}

at::Tensor host_alias(const at::Tensor& tensor) {
  if (!on_npu(tensor)) return tensor;
  const c10::Device host(c10::DeviceType::CPU);
  return tensor_over(share(tensor.storage(), host), host, tensor);
}

at::Tensor device_alias(const at::Tensor& tensor, c10::Device device) {
  if (!on_host(tensor)) return tensor;
  return tensor_over(adopt(tensor.storage(), device), device, tensor);
}

}  // namespace emu
