// Random numbers of the device: one generator per device, none of them the host's.
#pragma once
#include <ATen/core/Generator.h>

namespace emu {

at::Generator& default_generator(int device);
at::Generator new_generator(int device);
// The host generator that does the drawing for `generator`, which must be one of the device's.
at::Generator host_generator(const at::Generator& generator);

// While it lives, host kernels that draw from the host's global generator draw from `device`'s instead.
class DrawFrom {
 public:
  explicit DrawFrom(int device);
  ~DrawFrom();
  DrawFrom(const DrawFrom&) = delete;
  DrawFrom& operator=(const DrawFrom&) = delete;

 private:
  at::Generator host_, device_;
  c10::intrusive_ptr<c10::TensorImpl> saved_;
};

}  // namespace emu
