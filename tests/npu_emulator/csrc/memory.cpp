#include "memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "device.h"
#include "queue.h"
#include "recording.h"

namespace emu {

struct Block {
  void* data;
  size_t size;
  int device;
  uint64_t pool = 0;          // the pool that takes it back; 0: none
  bool of_capture = false;    // made during a capture
  bool held = true;           // a tensor holds it
  int graphs = 0, weak = 0;   // watchers
  c10::Storage adopted = {};  // owner of `data`, when the emulator did not allocate it
};

namespace {

constexpr size_t kGranularity = 512;  // as on hardware
constexpr size_t kAlignment = 64;

struct Pool {
  std::multimap<size_t, Block*> free;
  std::unordered_set<Block*> blocks;
  int users = 0;
};

using Lock = std::lock_guard<std::recursive_mutex>;  // recursive: destroying a block may free pinned memory

// Never destroyed: tensors outlive the library's static objects.
std::recursive_mutex& g_mutex = *new std::recursive_mutex;
auto& g_statistics = *new std::array<MemoryStatistics, kMaxDevices>;
auto& g_pools = *new std::unordered_map<uint64_t, Pool>;
auto& g_pinned = *new std::unordered_set<const void*>;

void count_reserved(int device, int64_t bytes) {
  auto& s = g_statistics.at(device);
  s.reserved += bytes;
  s.reserved_peak = std::max(s.reserved_peak, s.reserved);
}

void count_allocated(int device, int64_t bytes) {
  auto& s = g_statistics.at(device);
  s.allocated += bytes;
  s.allocated_peak = std::max(s.allocated_peak, s.allocated);
  ++(bytes > 0 ? s.allocations : s.frees);
}

void destroy(Block* block) {
  count_reserved(block->device, -static_cast<int64_t>(block->size));
  if (!block->adopted) std::free(block->data);
  delete block;
}

void poison_block(const Block* block) {
  // Host memory that somebody else also holds is not the device's to spoil.
  if (!block->adopted || block->adopted.use_count() == 1) poison(block->data, block->size);
}

bool waits_in_pool(const Block* block) {
  const auto pool = g_pools.find(block->pool);
  return !block->held && pool != g_pools.end() && pool->second.users > 0;
}

void destroy_if_unused(Block* block) {
  if (!block->held && block->graphs == 0 && block->weak == 0 && !waits_in_pool(block)) destroy(block);
}

void let_go(void* context) {  // the last tensor is gone
  auto* block = static_cast<Block*>(context);
  Lock lock(g_mutex);
  block->held = false;
  count_allocated(block->device, -static_cast<int64_t>(block->size));
  if (waits_in_pool(block)) {
    g_pools[block->pool].free.emplace(block->size, block);
    return;
  }
  if (block->graphs + block->weak > 0) poison_block(block);
  destroy_if_unused(block);
}

template <Keeper keeper>
void stop_watching(void* context) {
  auto* block = static_cast<Block*>(context);
  Lock lock(g_mutex);
  if (keeper == Keeper::kGraph) {
    if (--block->graphs == 0 && block->of_capture) poison_block(block);
  } else {
    --block->weak;
  }
  destroy_if_unused(block);
}

void stop_sharing(void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }

Block* take_from_pool(Pool& pool, size_t size) {
  const auto found = pool.free.lower_bound(size);
  if (found == pool.free.end() || found->first > 2 * size) return nullptr;
  Block* block = found->second;
  pool.free.erase(found);
  block->held = true;
  return block;
}

Block* make_block(size_t bytes, int device) {
  const size_t size = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  Lock lock(g_mutex);
  Recording* owner = pool_owner();
  Pool* pool = owner == nullptr ? nullptr : &g_pools[owner->pool()];
  Block* block = pool == nullptr ? nullptr : take_from_pool(*pool, size);
  if (block == nullptr) {
    const auto& s = g_statistics.at(device);
    TORCH_CHECK_WITH(OutOfMemoryError, s.reserved + size <= device_memory(), "NPU out of memory. Tried to allocate ", size,
                     " bytes; npu:", device, " has ", device_memory(), " bytes in total, of which ", s.reserved,
                     " are in use (emulated: TORCH_NPU_EMULATOR_MEMORY_GIB)");
    void* data = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&data, kAlignment, size) == 0, "emulated NPU: the host has no ", size,
                     " bytes of memory left");
    block = new Block{data, size, device};
    count_reserved(device, static_cast<int64_t>(size));
    if (pool != nullptr) {
      block->pool = owner->pool();
      block->of_capture = true;
      pool->blocks.insert(block);
    }
    static const bool poison_new = flag_from_environment("TORCH_NPU_EMULATOR_POISON_EMPTY", false);
    if (poison_new) poison(data, size);
  }
  count_allocated(device, static_cast<int64_t>(block->size));
  return block;
}

c10::DataPtr allocate_block(size_t bytes, int device, c10::Device shown) {
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, shown};
  Block* block = make_block(bytes, device);
  if (Recording* owner = pool_owner()) {
    c10::DataPtr data(block->data, block, &let_go, shown);
    auto storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data));
    owner->keep(watch(storage, npu(device), Keeper::kGraph));
    // Hand the data pointer on: `storage` was only needed to watch it.
    return storage.set_data_ptr(c10::DataPtr(nullptr, shown));
  }
  return {block->data, block, &let_go, shown};
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    return allocate_block(bytes, device, npu(device));
  }
  void copy_data(void* target, const void* source, size_t bytes) const override { default_copy_data(target, source, bytes); }
};

thread_local int t_allocate_on = -1;  // device whose memory CPU kernels allocate now; -1: ordinary host memory

// Stands before torch's CPU allocator.
struct HostAllocator final : c10::Allocator {
  c10::Allocator* plain = c10::GetAllocator(c10::DeviceType::CPU);
  c10::DataPtr allocate(size_t bytes) override {
    if (t_allocate_on < 0) return plain->allocate(bytes);
    return allocate_block(bytes, t_allocate_on, c10::Device(c10::DeviceType::CPU));
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return plain->is_simple_data_ptr(data); }
  c10::DeleterFnPtr raw_deleter() const override { return plain->raw_deleter(); }
  void copy_data(void* target, const void* source, size_t bytes) const override { plain->copy_data(target, source, bytes); }
};

void free_pinned(void* data) {
  {
    Lock lock(g_mutex);
    g_pinned.erase(data);
  }
  std::free(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      TORCH_CHECK(posix_memalign(&data, kAlignment, bytes) == 0, "emulated NPU: no ", bytes, " bytes of pinned memory left");
      Lock lock(g_mutex);
      g_pinned.insert(data);
    }
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* target, const void* source, size_t bytes) const override { default_copy_data(target, source, bytes); }
};

DeviceAllocator g_device_allocator;
PinnedAllocator g_pinned_allocator;
REGISTER_ALLOCATOR(kNpu, &g_device_allocator);

[[maybe_unused]] const bool g_host_allocator_installed = [] {
  static HostAllocator allocator;
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/1);
  return true;
}();

c10::Storage storage_over(void* data, void* context, c10::DeleterFnPtr deleter, size_t bytes, c10::Device device) {
  auto* allocator = device.is_cpu() ? c10::GetAllocator(c10::DeviceType::CPU) : device_allocator();
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            c10::DataPtr(data, context, deleter, device), allocator,
                                                            /*resizable=*/true));
}

}  // namespace

c10::Allocator* device_allocator() { return &g_device_allocator; }
c10::Allocator* pinned_allocator() { return &g_pinned_allocator; }

bool is_pinned(const void* data) {
  Lock lock(g_mutex);
  return g_pinned.count(data) > 0;
}

AllocateOnDevice::AllocateOnDevice(int device) : previous_(t_allocate_on) { t_allocate_on = device; }
AllocateOnDevice::~AllocateOnDevice() { t_allocate_on = previous_; }

Block* block_of(const c10::Storage& storage) {
  const auto& data = storage.data_ptr();
  const auto deleter = data.get_deleter();
  void* context = data.get_context();
  if (deleter == &let_go || deleter == &stop_watching<Keeper::kGraph> || deleter == &stop_watching<Keeper::kWeakReference>)
    return static_cast<Block*>(context);
  if (deleter == &stop_sharing)
    return block_of(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(static_cast<c10::StorageImpl*>(context))));
  return nullptr;
}

c10::Storage share(const c10::Storage& storage, c10::Device device) {
  c10::StorageImpl* owner = storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(owner);
  return storage_over(storage.mutable_data(), owner, &stop_sharing, storage.nbytes(), device);
}

c10::Storage watch(const c10::Storage& storage, c10::Device device, Keeper keeper) {
  Block* block = block_of(storage);
  if (block == nullptr) return share(storage, device);
  Lock lock(g_mutex);
  const bool graph = keeper == Keeper::kGraph;
  ++(graph ? block->graphs : block->weak);
  const auto deleter = graph ? &stop_watching<Keeper::kGraph> : &stop_watching<Keeper::kWeakReference>;
  return storage_over(storage.mutable_data(), block, deleter, storage.nbytes(), device);
}

c10::Storage adopt(const c10::Storage& storage, c10::Device device) {
  if (storage.nbytes() == 0 || block_of(storage) != nullptr) return share(storage, device);
  auto* block = new Block{storage.mutable_data(), storage.nbytes(), device.index()};
  block->adopted = storage;
  Lock lock(g_mutex);
  count_reserved(block->device, static_cast<int64_t>(block->size));
  count_allocated(block->device, static_cast<int64_t>(block->size));
  return storage_over(block->data, block, &let_go, block->size, device);
}

void poison(void* data, size_t bytes) {
  constexpr uint16_t pattern = 0x7FFF;
  std::fill_n(static_cast<uint16_t*>(data), bytes / sizeof(pattern), pattern);
}

uint64_t new_pool() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

void acquire_pool(uint64_t pool) {
  Lock lock(g_mutex);
  ++g_pools[pool].users;
}

void release_pool(uint64_t id) {
  Lock lock(g_mutex);
  const auto found = g_pools.find(id);
  if (found == g_pools.end() || --found->second.users > 0) return;
  const Pool pool = std::move(found->second);
  g_pools.erase(found);
  for (Block* block : pool.blocks) {
    block->pool = 0;
    if (!block->held) poison_block(block);
    destroy_if_unused(block);
  }
}

MemoryStatistics memory_statistics(int device) {
  Lock lock(g_mutex);
  return g_statistics.at(device);
}

void reset_peak_memory(int device) {
  Lock lock(g_mutex);
  auto& s = g_statistics.at(device);
  s.allocated_peak = s.allocated;
  s.reserved_peak = s.reserved;
}

}  // namespace emu
