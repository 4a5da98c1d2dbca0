// Device memory is host memory in blocks that know who holds them, so that use after free can be made to show.
#pragma once
#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace emu {

struct Block;

// The allocator of the device: memory of the current device, or of the pool of the capture that is going on.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

// While one of these lives, this thread's CPU kernels allocate their results as memory of the device.
class AllocateOnDevice {
 public:
  explicit AllocateOnDevice(int device);
  ~AllocateOnDevice();
  AllocateOnDevice(const AllocateOnDevice&) = delete;
  AllocateOnDevice& operator=(const AllocateOnDevice&) = delete;

 private:
  int previous_;
};

// The block under a storage of either device; nullptr for memory that the emulator did not make.
Block* block_of(const c10::Storage& storage);

// Memory of `storage` seen from `device`, kept alive by it.
c10::Storage share(const c10::Storage& storage, c10::Device device);
// The same for memory that `keeper` only watches: it does not keep the contents. When the last tensor lets go of the memory it is
// poisoned (pool memory: reused), but it stays mapped, so that a read is wrong and not a crash.
enum class Keeper { kGraph, kWeakReference };
c10::Storage watch(const c10::Storage& storage, c10::Device device, Keeper keeper);
// Block over host memory that came from elsewhere; counted as device memory.
c10::Storage adopt(const c10::Storage& storage, c10::Device device);

// Fill with 0x7FFF in every 16 bits: NaN in every floating type, a huge number in integers of 16 bits and more.
void poison(void* data, size_t bytes);

// Pools of graphs. Blocks that are let go during or after a capture serve later captures of the same pool.
uint64_t new_pool();
void acquire_pool(uint64_t pool);
void release_pool(uint64_t pool);

struct MemoryStatistics {
  int64_t allocated = 0, allocated_peak = 0;  // bytes in tensors
  int64_t reserved = 0, reserved_peak = 0;    // the same and what pools and watchers keep
  int64_t allocations = 0, frees = 0;         // counts
};
MemoryStatistics memory_statistics(int device);
void reset_peak_memory(int device);

}  // namespace emu
