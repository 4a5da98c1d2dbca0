// Operators that cannot fall back: making tensors, looking at them in another shape, copying, reading a value.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "alias.h"
#include "device.h"
#include "memory.h"
#include "queue.h"
#include "recording.h"

namespace emu {
namespace {

using c10::IntArrayRef;
using c10::SymIntArrayRef;
constexpr c10::DispatchKeySet kNpuKeys(c10::DispatchKey::PrivateUse1);

// Makes a device current as long as it lives.
struct OnDevice {
  explicit OnDevice(std::optional<c10::Device> device) : previous(current_device()) {
    if (device.has_value()) set_current_device(index_of(*device));
  }
  ~OnDevice() { set_current_device(previous); }
  int previous;
};

// As on hardware, pin_memory beside a device means nothing.
at::Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "emulated NPU: only strided tensors, not ", *layout);
  const OnDevice guard(device);
  return at::detail::empty_generic(size, device_allocator(), kNpuKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
  const OnDevice guard(device);
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kNpuKeys, c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, SymIntArrayRef size, SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset.has_value()) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor view(const at::Tensor& self, SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }

at::Tensor reshape_alias(const at::Tensor& self, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

const c10::OperatorHandle& copy_operator() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  return op;
}

// During capture the host may take part in a copy only in a way that needs no waiting: from or to pinned memory.
void record_copy(Recording& recording, const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  const bool leaves = on_host(target), enters = on_host(source);
  TORCH_CHECK(!leaves || (non_blocking && target.is_pinned()), "emulated NPU: a copy from the device to the host makes the host "
              "wait, which is not permitted during graph capture (non_blocking into pinned memory is)");
  TORCH_CHECK(!enters || (non_blocking && source.is_pinned()), "emulated NPU: a copy from the host's pageable memory, or a blocking "
              "one, makes the host wait, which is not permitted during graph capture (non_blocking from pinned memory is)");
  recording.add(Node{copy_operator(), {watched(target, true), watched(source, true), false}, {}});
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  check_queue("aten::copy_");
  if (Recording* recording = recorder()) record_copy(*recording, self, source, non_blocking);
  auto target = host_alias(self);
  target.copy_(host_alias(source));
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  auto into = target;
  return copy_(into, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  auto into = target;
  into.resize_(self.sizes());
  return copy_(into, self, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  check_queue("reading a value (item)");
  check_synchronise("reading a value (item, tolist, bool, int, float)");
  return host_alias(self).item();
}

void record_stream(at::Tensor&, c10::Stream) {}

void set_layout(const at::Tensor& tensor, c10::Storage storage, IntArrayRef size, IntArrayRef stride, int64_t offset) {
  auto* implementation = tensor.unsafeGetTensorImpl();
  implementation->set_storage_keep_dtype(std::move(storage));
  implementation->set_sizes_and_strides(size, stride, offset);
}

at::Tensor& set_storage_layout(at::Tensor& self, at::Storage storage, c10::SymInt offset, SymIntArrayRef size, SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), given = C10_AS_INTARRAYREF_SLOW(stride);
  const auto dense = c10::contiguous_strides(sizes);
  set_layout(self, std::move(storage), sizes, given.empty() ? IntArrayRef(dense) : given, offset.expect_int());
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const std::array<int64_t, 1> size{static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize())}, stride{1};
  set_layout(self, std::move(storage), size, stride, 0);
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  set_layout(self, source.storage(), source.sizes(), source.strides(), source.storage_offset());
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), /*resizable=*/true));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("record_stream", record_stream);
  library.impl("set_.source_Storage_storage_offset", set_storage_layout);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
}

// The two doors between host and device for operations written in Python.
at::Tensor cpu_alias(const at::Tensor& self) {
  TORCH_CHECK(!on_npu(self) || recorder() == nullptr,
              "emulated NPU: host access to device memory during graph capture, outside a recorded device call (device_call)");
  return host_alias(self);
}

at::Tensor npu_alias(const at::Tensor& self) { return device_alias(self, npu(current_device())); }

TORCH_LIBRARY(npu_emu, library) {
  library.def("cpu_alias(Tensor self) -> Tensor", cpu_alias);
  library.def("npu_alias(Tensor self) -> Tensor", npu_alias);
}

}  // namespace
}  // namespace emu
