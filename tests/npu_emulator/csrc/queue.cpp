#include "queue.h"

#include <atomic>

#include "device.h"
#include "recording.h"

namespace emu {
namespace {

std::atomic<bool> g_waiting{false};
thread_local Recording* t_capture = nullptr;
thread_local int t_device_calls = 0;

bool on_captured_stream() { return t_capture->has_stream(current_stream(current_device())); }

}  // namespace

bool queue_is_waiting() { return g_waiting; }
void set_queue_waiting(bool waiting) { g_waiting = waiting; }

void check_queue(const char* what) {
  TORCH_CHECK(!g_waiting, "emulated NPU: ", what,
              " was issued while a graph replay waits for an external event; record the event first");
}

bool is_capturing() { return t_capture != nullptr; }
Recording* capturing() { return t_capture; }
void set_capturing(Recording* recording) { t_capture = recording; }
Recording* recorder() {
  return t_capture != nullptr && t_device_calls == 0 && on_captured_stream() ? t_capture : nullptr;
}
Recording* pool_owner() { return t_capture != nullptr && on_captured_stream() ? t_capture : nullptr; }

void check_synchronise(const char* what) {
  TORCH_CHECK(t_capture == nullptr || t_device_calls > 0, "emulated NPU: ", what, " is not permitted during graph capture");
  TORCH_CHECK(!g_waiting, "emulated NPU: ", what,
              " would never return: a graph replay waits for an external event that was not recorded");
}

void enter_device_call() { ++t_device_calls; }
void leave_device_call() { --t_device_calls; }
bool in_device_call() { return t_device_calls > 0; }

}  // namespace emu
