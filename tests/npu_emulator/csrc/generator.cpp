#include "generator.h"

#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include "device.h"

namespace emu {
namespace {

struct NpuGenerator final : c10::GeneratorImpl {
  explicit NpuGenerator(int device, at::Generator source = at::detail::createCPUGenerator())
      : c10::GeneratorImpl(npu(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), host(std::move(source)) {}
  static c10::DeviceType device_type() { return kNpu; }

  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  void set_offset(uint64_t) override { no_offset(); }
  uint64_t get_offset() const override {
    no_offset();
    return 0;
  }
  NpuGenerator* clone_impl() const override { return new NpuGenerator(device().index(), host.clone()); }

  at::Generator host;

 private:
  static void no_offset() {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "emulated NPU: a generator has no offset here; use get_state and set_state");
  }
};

}  // namespace

at::Generator& default_generator(int device) {
  static auto& generators = *new std::vector<at::Generator>([] {
    std::vector<at::Generator> all;
    for (int index = 0; index < device_count(); ++index) all.push_back(new_generator(index));
    return all;
  }());
  return generators.at(device);
}

at::Generator new_generator(int device) { return at::make_generator<NpuGenerator>(device); }

at::Generator host_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kNpu, "Expected a 'npu' device type for generator but found '", generator.device(), "'");
  return static_cast<NpuGenerator*>(generator.unsafeGetGeneratorImpl())->host;
}

DrawFrom::DrawFrom(int device)
    : host_(at::detail::getDefaultCPUGenerator()), device_(host_generator(default_generator(device))) {
  saved_ = host_.unsafeGetGeneratorImpl()->get_state();
  host_.unsafeGetGeneratorImpl()->set_state(*device_.unsafeGetGeneratorImpl()->get_state());
}

DrawFrom::~DrawFrom() {
  device_.unsafeGetGeneratorImpl()->set_state(*host_.unsafeGetGeneratorImpl()->get_state());
  host_.unsafeGetGeneratorImpl()->set_state(*saved_);
}

}  // namespace emu
