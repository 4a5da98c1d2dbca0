// What the fallback has to know about an operator, found once per operator.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace emu {

struct Traits {
  bool has_kernel;           // the device runs torch's own operators; others need an implementation of their own
  bool writes;               // into an argument
  bool takes_host_tensors;   // beside device tensors: index operators take their indices from either
  bool indexes;              // a boolean index makes the host wait for its number of true elements
  bool reads_back;           // the result's shape or value depends on the data, so the host waits for the device
  bool draws_unnamed;        // random, with no generator among the arguments
  int generator = -1;        // position of the generator
  int result_size = -1;      // position of an argument that, when given, spares the reading back
};

const Traits& traits_of(const c10::OperatorHandle& op);

}  // namespace emu
