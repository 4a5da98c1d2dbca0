#include "recording.h"

#include <ATen/ops/copy.h>

#include "alias.h"
#include "device.h"
#include "generator.h"
#include "memory.h"

namespace emu {

void Node::run() const {
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  const c10::DispatchKeySet host(c10::DispatchKey::CPU);
  if (random_device >= 0) {
    DrawFrom source(random_device);
    op.redispatchBoxed(host, &stack);
  } else {
    op.redispatchBoxed(host, &stack);
  }
  for (const auto& result : results) {
    const auto& value = stack[result.place];
    auto target = result.into;  // copy_ wants a non-const handle
    target.copy_(result.element < 0 ? value.toTensor() : value.toTensorVector().at(result.element));
  }
}

Recording::Recording(uint64_t pool) : pool_(pool) { acquire_pool(pool); }

Recording::~Recording() { release(); }

size_t Recording::add_foreign() {
  nodes_.emplace_back(std::nullopt);
  return nodes_.size() - 1;
}

size_t Recording::run(size_t position) const {
  for (; position < nodes_.size() && nodes_[position].has_value(); ++position) nodes_[position]->run();
  return position;
}

std::vector<std::string> Recording::names() const {
  std::vector<std::string> names;
  for (const auto& node : nodes_) names.push_back(node.has_value() ? node->op.schema().name() : "");
  return names;
}

void Recording::poison_memory() const {
  for (const auto& storage : memory_) poison(storage.mutable_data(), storage.nbytes());
}

void Recording::release() {
  if (released_) return;
  released_ = true;
  nodes_.clear();
  memory_.clear();
  release_pool(pool_);
}

at::Tensor watched(const at::Tensor& tensor, bool as_host) {
  if (!on_npu(tensor)) return tensor;
  const c10::Device device = as_host ? c10::Device(c10::DeviceType::CPU) : tensor.device();
  return tensor_over(watch(tensor.storage(), device, Keeper::kGraph), device, tensor);
}

at::Tensor weak_reference(const at::Tensor& tensor) {
  if (!on_npu(tensor)) return tensor;
  return tensor_over(watch(tensor.storage(), tensor.device(), Keeper::kWeakReference), tensor.device(), tensor);
}

}  // namespace emu
