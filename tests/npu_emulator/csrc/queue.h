// The one device queue of the process: who may issue work now, and whether it runs or is recorded.
#pragma once
#include <c10/core/Stream.h>

namespace emu {

class Recording;

// A graph replay that stopped at an external event holds the queue until the event is recorded.
bool queue_is_waiting();
void set_queue_waiting(bool waiting);
// Throws when the queue is held: hardware would run `what` after the replay, so a result now would be wrong.
void check_queue(const char* what);

// Capture is a state of one thread; it covers the streams that were joined to the capture.
bool is_capturing();
Recording* capturing();                   // the capture of this thread, whatever stream is current
void set_capturing(Recording* recording);  // nullptr ends it
Recording* recorder();                    // where an operator issued now is recorded; nullptr outside capture, on streams
                                          // that are not part of it, and inside a device call
Recording* pool_owner();                  // whose pool memory allocated now belongs to; nullptr: none
// Throws when the host may not wait for the device now: during capture, and while a replay waits.
void check_synchronise(const char* what);

// Inside a device call (an operation implemented in Python) nothing is recorded and host access is allowed.
void enter_device_call();
void leave_device_call();
bool in_device_call();

}  // namespace emu
