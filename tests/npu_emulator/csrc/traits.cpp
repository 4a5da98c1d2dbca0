#include "traits.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

#include <ATen/core/enum_tag.h>

namespace emu {
namespace {

using Names = std::unordered_set<std::string>;

const Names kIndex = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
                      "aten::_unsafe_index_put"};

const Names kReadsBack = {"aten::nonzero", "aten::nonzero_numpy", "aten::argwhere", "aten::masked_select", "aten::equal",
                          "aten::is_nonzero", "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
                          "aten::unique_dim_consecutive", "aten::bincount", "aten::repeat_interleave"};

bool is_generator(const c10::Argument& argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

Traits find_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  Traits traits{};
  traits.has_kernel = name.rfind("aten::", 0) == 0 || name.rfind("prims::", 0) == 0;
  traits.writes = schema.is_mutable();
  traits.takes_host_tensors = traits.indexes = kIndex.count(name) > 0;
  traits.reads_back = kReadsBack.count(name) > 0;
  if (const auto position = schema.argumentIndexWithName("output_size")) traits.result_size = *position;
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (is_generator(schema.arguments()[i])) traits.generator = static_cast<int>(i);
  traits.draws_unnamed = traits.generator < 0 && op.hasTag(at::Tag::nondeterministic_seeded);
  return traits;
}

}  // namespace

const Traits& traits_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const void*, Traits> known;
  const void* key = &op.schema();
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, find_traits(op)).first->second;
}

}  // namespace emu
