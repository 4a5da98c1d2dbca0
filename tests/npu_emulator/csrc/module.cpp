// torch_npu._native: what the Python half needs besides operators.
#include <memory>

#include <torch/csrc/utils/pybind.h>

#include "alias.h"
#include "device.h"
#include "generator.h"
#include "memory.h"
#include "queue.h"
#include "recording.h"

namespace py = pybind11;

namespace {

py::dict statistics(int device) {
  const auto s = emu::memory_statistics(device);
  py::dict all;
  all["allocated"] = s.allocated;
  all["allocated_peak"] = s.allocated_peak;
  all["reserved"] = s.reserved;
  all["reserved_peak"] = s.reserved_peak;
  all["allocations"] = s.allocations;
  all["frees"] = s.frees;
  return all;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("device_count", &emu::device_count);
  module.def("current_device", &emu::current_device);
  module.def("set_device", &emu::set_current_device);
  module.def("device_memory", &emu::device_memory);
  module.def("current_stream", &emu::current_stream);
  module.def("set_stream", &emu::set_current_stream);
  module.def("flag", &emu::flag_from_environment);
  module.def("number", &emu::positive_from_environment);

  module.def("default_generator", [](int device) { return emu::default_generator(device); });
  module.def("memory_statistics", &statistics);
  module.def("reset_peak_memory", &emu::reset_peak_memory);
  module.def("new_pool", &emu::new_pool);
  module.def("weak_reference", &emu::weak_reference);
  module.def("watched", [](const at::Tensor& tensor) { return emu::watched(tensor, /*as_host=*/false); });

  module.def("queue_is_waiting", &emu::queue_is_waiting);
  module.def("set_queue_waiting", &emu::set_queue_waiting);
  module.def("check_queue", [](const std::string& what) { emu::check_queue(what.c_str()); });
  module.def("check_synchronise", [](const std::string& what) { emu::check_synchronise(what.c_str()); });
  module.def("is_capturing", &emu::is_capturing);
  module.def("is_recording", [] { return emu::recorder() != nullptr; });
  module.def("set_capturing", &emu::set_capturing, py::arg("recording").none(true));
  module.def("enter_device_call", &emu::enter_device_call);
  module.def("leave_device_call", &emu::leave_device_call);

  py::class_<emu::Recording>(module, "Recording")
      .def(py::init<uint64_t>())
      .def_property_readonly("pool", &emu::Recording::pool)
      .def("add_stream", &emu::Recording::add_stream)
      .def("has_stream", &emu::Recording::has_stream)
      .def("add_foreign", &emu::Recording::add_foreign)
      .def("run", &emu::Recording::run, py::call_guard<py::gil_scoped_release>())
      .def("names", &emu::Recording::names)
      .def("poison_memory", &emu::Recording::poison_memory)
      .def("release", &emu::Recording::release)
      .def("__len__", &emu::Recording::size);
}
