// The devices of this process: how many there are, which one is current, and the streams of each.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace emu {

constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

// Number of devices: TORCH_NPU_EMULATOR_DEVICES, or as many of them as ASCEND_RT_VISIBLE_DEVICES lists.
int device_count();
int current_device();
void set_current_device(int index);  // throws when there is no such device
inline c10::Device npu(int index) { return c10::Device(kNpu, static_cast<c10::DeviceIndex>(index)); }
// The index of `device`, the current one where it has none.
int index_of(c10::Device device);

// Streams are numbers: work is done in the order of issue on any of them. The current one is kept per thread and device.
c10::StreamId current_stream(int device);
void set_current_stream(int device, c10::StreamId stream);
c10::StreamId new_stream();

// Bytes of memory each device has: TORCH_NPU_EMULATOR_MEMORY_GIB.
size_t device_memory();
// Value of an environment variable as a positive number; throws naming the variable when it is anything else.
double positive_from_environment(const char* name, double fallback);
bool flag_from_environment(const char* name, bool fallback);

}  // namespace emu
