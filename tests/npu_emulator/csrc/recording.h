// A graph: the operators of a capture, and their replay into the same memory.
#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

namespace emu {

// One operator of a capture. Its tensors are host aliases that only watch their memory.
struct Node {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
  struct Result {
    size_t place;     // among the operator's return values
    int64_t element;  // of a list of tensors; -1: the return value itself
    at::Tensor into;
  };
  std::vector<Result> results;  // results in memory of their own, written back at each replay
  int random_device = -1;       // device whose generator the operator draws from without naming it

  void run() const;
};

class Recording {
 public:
  explicit Recording(uint64_t pool);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  uint64_t pool() const { return pool_; }
  void add_stream(c10::StreamId stream) { streams_.insert(stream); }
  bool has_stream(c10::StreamId stream) const { return streams_.count(stream) > 0; }

  void add(Node node) { nodes_.push_back(std::move(node)); }
  // Place for an operation that Python runs; returns its position.
  size_t add_foreign();
  size_t size() const { return nodes_.size(); }
  // Run from `position` to the next operation of Python's, or to the end. Returns where it stopped.
  size_t run(size_t position) const;
  std::vector<std::string> names() const;

  // Watch memory made in this capture until the graph is released.
  void keep(c10::Storage storage) { memory_.push_back(std::move(storage)); }
  // Spoil memory of the capture: it holds nothing before the first replay.
  void poison_memory() const;
  // Forget everything; memory of the capture is poisoned, and goes when the last graph of the pool does this.
  void release();

 private:
  uint64_t pool_;
  bool released_ = false;
  std::set<c10::StreamId> streams_;
  std::vector<std::optional<Node>> nodes_;
  std::vector<c10::Storage> memory_;
};

// Tensor over the same memory that does not keep it: for nodes (on either device), and for users.
at::Tensor watched(const at::Tensor& tensor, bool as_host);
at::Tensor weak_reference(const at::Tensor& tensor);

}  // namespace emu
