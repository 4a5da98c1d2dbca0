#include "device.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "queue.h"

namespace emu {

double positive_from_environment(const char* name, double fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  TORCH_CHECK_VALUE(*end == '\0' && value > 0, name, "=", text, ": set a positive number");
  return value;
}

bool flag_from_environment(const char* name, bool fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  const std::string value(text);
  TORCH_CHECK_VALUE(value == "0" || value == "1", name, "=", value, ": set 0 or 1");
  return value == "1";
}

size_t device_memory() {
  static const auto bytes = static_cast<size_t>(positive_from_environment("TORCH_NPU_EMULATOR_MEMORY_GIB", 4) * (1UL << 30));
  return bytes;
}

namespace {

int count_visible() {
  const double asked = positive_from_environment("TORCH_NPU_EMULATOR_DEVICES", 8);
  TORCH_CHECK_VALUE(asked <= kMaxDevices && asked == static_cast<int>(asked), "TORCH_NPU_EMULATOR_DEVICES=", asked,
                    ": set a whole number up to ", kMaxDevices);
  const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (visible == nullptr || *visible == '\0') return static_cast<int>(asked);
  int listed = 1;
  for (const char* c = visible; *c != '\0'; ++c) listed += *c == ',';
  return std::min(listed, static_cast<int>(asked));
}

thread_local int t_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> t_streams{};  // 0 is the default stream

}  // namespace

int device_count() {
  static const int count = count_visible();
  return count;
}

int current_device() { return t_device; }

void set_current_device(int index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "emulated NPU: there is no npu:", index, " among ", device_count(),
              " devices; raise TORCH_NPU_EMULATOR_DEVICES");
  t_device = index;
}

int index_of(c10::Device device) {
  if (!device.has_index()) return t_device;
  TORCH_CHECK(device.index() < device_count(), "emulated NPU: there is no ", device, " among ", device_count(),
              " devices; raise TORCH_NPU_EMULATOR_DEVICES");
  return device.index();
}

c10::StreamId current_stream(int device) { return t_streams.at(device); }
void set_current_stream(int device, c10::StreamId stream) { t_streams.at(device) = stream; }

c10::StreamId new_stream() {
  static std::atomic<c10::StreamId> next{1};
  return next++;
}

namespace {

c10::Stream stream_of(c10::StreamId id, int device) { return c10::Stream(c10::Stream::UNSAFE, npu(device), id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const int previous = t_device;
    if (device.has_index()) set_current_device(device.index());
    return npu(previous);
  }
  c10::Device getDevice() const override { return npu(t_device); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) t_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(emu::device_count()); }

  c10::Stream getStream(c10::Device device) const override {
    const int index = index_of(device);
    return stream_of(t_streams.at(index), index);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(0, index_of(device)); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream_of(new_stream(), index_of(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const int index = index_of(stream.device());
    const auto previous = stream_of(t_streams.at(index), index);
    t_streams.at(index) = stream.id();
    return previous;
  }
  bool queryStream(const c10::Stream&) const override { return !queue_is_waiting(); }
  void synchronizeStream(const c10::Stream&) const override { check_synchronise("Stream.synchronize"); }
  void synchronizeDevice(const c10::DeviceIndex) const override { check_synchronise("synchronize"); }
  bool isStreamCapturing(const c10::Stream&) const override { return is_capturing(); }

  // Work is finished when it is issued, so an event of torch.Event carries nothing but its existence.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new char;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return !queue_is_waiting(); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<char*>(event); }
  void synchronizeEvent(void*) const override { check_synchronise("Event.synchronize"); }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "emulated NPU: torch.Event.elapsed_time is not emulated; use torch.npu.Event");
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace emu
