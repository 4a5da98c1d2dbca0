// The same memory as a tensor of the host and as a tensor of the device, without a copy.
#pragma once
#include <ATen/core/Tensor.h>

namespace emu {

// Tensor on `device` with the shape, strides and dtype of `like` over `storage`.
at::Tensor tensor_over(const c10::Storage& storage, c10::Device device, const at::Tensor& like);
at::Tensor host_alias(const at::Tensor& tensor);                     // other tensors than the device's: unchanged
at::Tensor device_alias(const at::Tensor& tensor, c10::Device device);  // other tensors than the host's: unchanged
inline bool on_npu(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1; }
inline bool on_host(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_cpu(); }

}  // namespace emu
