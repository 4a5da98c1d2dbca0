// Every operator of torch on the device: its host kernel on host aliases of the device's memory, nothing copied.
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "alias.h"
#include "device.h"
#include "generator.h"
#include "memory.h"
#include "queue.h"
#include "recording.h"
#include "traits.h"

namespace emu {
namespace {

using c10::IValue;
using torch::jit::Stack;

struct Operand {
  at::Tensor npu, host;
  const void* data;
};
using Operands = c10::SmallVector<Operand, 6>;

// The value with `change` done to every tensor in it.
template <typename Change>
IValue map_tensors(const IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor.has_value() ? std::optional(change(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), traits_(traits_of(op)), stack_(stack), first_(stack->size() - op.schema().arguments().size()) {}

  void run() {
    const char* name = op_.schema().name().c_str();
    TORCH_CHECK_NOT_IMPLEMENTED(traits_.has_kernel, name, " is not emulated: it has no kernel for the device 'npu'");
    check_queue(name);
    if (Recording* recording = recorder()) return run_recorded(*recording);
    to_host();
    execute();
    return_to_npu();
  }

 private:
  IValue& argument(size_t position) { return (*stack_)[first_ + position]; }
  size_t arguments() const { return op_.schema().arguments().size(); }

  void to_host() {
    for (size_t i = 0; i < arguments(); ++i) {
      IValue& value = argument(i);
      if (value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
        value = map_tensors(value, [this](const at::Tensor& tensor) { return operand(tensor); });
      } else if (value.isDevice() && value.toDevice().type() == kNpu) {
        if (device_ < 0) device_ = index_of(value.toDevice());
        value = c10::Device(c10::DeviceType::CPU);
      }
    }
    if (device_ < 0) device_ = current_device();
    if (traits_.generator >= 0) {
      IValue& value = argument(traits_.generator);
      value = host_generator(value.isNone() ? default_generator(device_) : value.toGenerator());
    }
    TORCH_CHECK(!foreign_.defined() || operands_.empty() || traits_.takes_host_tensors,
                "Expected all tensors to be on the same device, but found at least two devices, npu:", device_,
                " and cpu! (emulated NPU: ", op_.schema().name(), " with a host tensor of shape ", foreign_.sizes(), ")");
  }

  at::Tensor operand(const at::Tensor& tensor) {
    if (!on_npu(tensor)) {
      // As on hardware, a host tensor without dimensions is a number.
      if (on_host(tensor) && tensor.dim() > 0) foreign_ = tensor;
      return tensor;
    }
    const int device = tensor.device().index();
    TORCH_CHECK(operands_.empty() || device == device_, "Expected all tensors to be on the same device, but found at least two ",
                "devices, npu:", device_, " and npu:", device, "! (emulated NPU: ", op_.schema().name(), ")");
    device_ = device;
    operands_.push_back({tensor, host_alias(tensor), tensor.storage().data()});
    return operands_.back().host;
  }

  void execute() {
    AllocateOnDevice memory(device_);
    const c10::DispatchKeySet host(c10::DispatchKey::CPU);
    if (traits_.draws_unnamed) {
      DrawFrom source(device_);
      op_.redispatchBoxed(host, stack_);
    } else {
      op_.redispatchBoxed(host, stack_);
    }
    if (traits_.writes)
      for (auto& operand : operands_) write_back(operand);
  }

  // Carry over what the kernel did to an argument itself: a new shape, memory that grew.
  void write_back(const Operand& operand) {
    if (operand.host.storage().data() != operand.data || operand.host.storage().nbytes() != operand.npu.storage().nbytes()) {
      auto* storage = operand.npu.storage().unsafeGetStorageImpl();
      auto grown = share(operand.host.storage(), operand.npu.device());
      storage->set_nbytes(grown.nbytes());
      storage->set_data_ptr_noswap(grown.set_data_ptr(c10::DataPtr(nullptr, operand.npu.device())));
    }
    if (operand.npu.sizes() != operand.host.sizes() || operand.npu.strides() != operand.host.strides() ||
        operand.npu.storage_offset() != operand.host.storage_offset())
      operand.npu.unsafeGetTensorImpl()->set_sizes_and_strides(operand.host.sizes(), operand.host.strides(),
                                                               operand.host.storage_offset());
  }

  size_t first_result() const { return stack_->size() - op_.schema().returns().size(); }

  void return_to_npu() {
    for (size_t i = first_result(); i < stack_->size(); ++i) {
      IValue& value = (*stack_)[i];
      if (value.isTensor() || value.isTensorList())
        value = map_tensors(value, [this](const at::Tensor& tensor) { return result(tensor); });
    }
  }

  at::Tensor result(const at::Tensor& host) {
    if (!on_host(host)) return host;
    for (const auto& operand : operands_)
      if (operand.host.unsafeGetTensorImpl() == host.unsafeGetTensorImpl()) return operand.npu;
    for (const auto& operand : operands_)
      if (operand.host.storage().is_alias_of(host.storage()))
        return tensor_over(operand.npu.storage(), operand.npu.device(), host);
    auto fresh = tensor_over(share(host.storage(), npu(device_)), npu(device_), host);
    operands_.push_back({fresh, host, host.storage().data()});  // a later result may be a view of it
    return fresh;
  }

  void run_recorded(Recording& recording) {
    refuse_synchronisation();
    std::vector<IValue> watchers;
    for (size_t i = 0; i < arguments(); ++i)
      watchers.push_back(map_tensors(argument(i), [](const at::Tensor& tensor) {
        // A host number is read when the operator is issued, which a replay does not do again.
        return on_host(tensor) && tensor.dim() == 0 ? tensor.clone() : watched(tensor, /*as_host=*/true);
      }));
    to_host();
    for (size_t i = 0; i < arguments(); ++i)
      if (argument(i).isDevice() || argument(i).isGenerator()) watchers[i] = argument(i);
    const auto inputs = operands_.size();
    execute();
    for (size_t i = 0; i < inputs; ++i)
      TORCH_CHECK_NOT_IMPLEMENTED(operands_[i].npu.storage().data() == operands_[i].data, "emulated NPU: ", op_.schema().name(),
                                  " moved a tensor to other memory during graph capture; give it its final size before");
    return_to_npu();
    record(recording, std::move(watchers), inputs);
  }

  void refuse_synchronisation() {
    const std::string& name = op_.schema().name();
    bool waits = traits_.reads_back && (traits_.result_size < 0 || argument(traits_.result_size).isNone());
    if (traits_.indexes) {
      map_tensors(argument(1), [&](const at::Tensor& index) {
        if (!index.defined()) return index;
        const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
        waits = waits || on_host(index) || (mask && !traits_.writes);
        return index;
      });
    }
    TORCH_CHECK(!waits, "emulated NPU: ", name, " makes the host wait for the device, which is not permitted during graph capture");
  }

  void record(Recording& recording, std::vector<IValue> watchers, size_t inputs) {
    Node node{op_, std::move(watchers), {}, traits_.draws_unnamed ? device_ : -1};
    const auto add = [&](const at::Tensor& tensor, size_t place, int64_t element) {
      if (!on_npu(tensor) || tensor.numel() == 0) return;
      for (size_t i = 0; i < inputs; ++i)
        if (operands_[i].npu.storage().is_alias_of(tensor.storage())) return;
      node.results.push_back({place, element, watched(tensor, /*as_host=*/true)});
    };
    for (size_t i = first_result(), place = 0; i < stack_->size(); ++i, ++place) {
      const IValue& value = (*stack_)[i];
      if (value.isTensor()) add(value.toTensor(), place, -1);
      if (value.isTensorList()) {
        int64_t element = 0;
        for (const auto& tensor : value.toTensorVector()) add(tensor, place, element++);
      }
    }
    if (traits_.writes || !node.results.empty()) recording.add(std::move(node));
  }

  const c10::OperatorHandle& op_;
  const Traits& traits_;
  Stack* stack_;
  size_t first_;
  Operands operands_;
  at::Tensor foreign_;
  int device_ = -1;
};

void fallback(const c10::OperatorHandle& op, Stack* stack) { Call(op, stack).run(); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace
}  // namespace emu
