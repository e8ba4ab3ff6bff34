#include <lockstep/error.h>
#include <lockstep/torch/collectives.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>

#include "torch/group.h"

namespace lockstep::torch {
namespace {

using ::torch::Tensor;

c10d::ReduceOp operation(Reduce how) {
  switch (how) {
    case Reduce::min:
      return c10d::ReduceOp::MIN;
    case Reduce::max:
      return c10d::ReduceOp::MAX;
    case Reduce::product:
      return c10d::ReduceOp::PRODUCT;
    default:
      return c10d::ReduceOp::SUM;  // a mean is divided afterwards, because not every backend supports AVG
  }
}

/// Runs `exchange` on a contiguous copy of `tensor` if necessary, and copies the result back.
Tensor in_place(const Tensor& tensor, const std::function<void(std::vector<Tensor>&)>& exchange) {
  const ::torch::NoGradGuard no_grad;
  const Tensor target = tensor.detach();
  std::vector<Tensor> dense{target.contiguous()};
  exchange(dense);
  if (!dense.front().is_same(target)) target.copy_(dense.front());
  return tensor;
}

/// Calls `use` with every number of a dict and its name, sorted by key, so that ranks may have their keys in any order.
/// Nested values are named as in "losses/0".
void visit(Value& value, const std::string& name, const std::function<void(const std::string&, Value&)>& use) {
  const auto inside = [&](const std::string& key) { return name.empty() ? key : name + "/" + key; };
  if (value.is_object()) {
    std::vector<std::string> keys;
    for (const auto& item : value.items()) keys.push_back(item.key());
    std::sort(keys.begin(), keys.end());
    for (const auto& key : keys) visit(value[key], inside(key), use);
  } else if (value.is_array()) {
    for (std::size_t place = 0; place < value.size(); ++place) visit(value[place], inside(std::to_string(place)), use);
  } else if (value.is_number() || value.is_boolean()) {
    use(name, value);
  } else {
    throw ConfigError("[all_reduce] " + name + " is " + value.dump().substr(0, 100) +
                      "; it must be a number, or a dict or a list of numbers");
  }
}

/// Those of `names` that `others` lack.
std::string missing(const std::set<std::string>& names, const std::set<std::string>& others) {
  std::vector<std::string> found;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(), std::back_inserter(found));
  std::string text;
  for (std::size_t i = 0; i < found.size() && i < 8; ++i) text += (i > 0 ? ", " : "") + found[i];
  return found.empty() ? "nothing" : text + (found.size() > 8 ? ", ..." : "");
}

/// Throws on every rank if some have other names than rank 0; otherwise different metrics would be added.
void check_equal(const std::vector<std::string>& names) {
  std::size_t sum = names.size();
  for (const auto& name : names) sum = sum * 31 + std::hash<std::string>()(name);
  const auto sums = all_gather(::torch::tensor(static_cast<std::int64_t>(sum)));
  const auto other = std::find_if(sums.begin(), sums.end(), [&](const Tensor& each) { return !each.equal(sums[0]); });
  if (other == sums.end()) return;
  const auto all = all_gather(Value(names));
  const auto place = static_cast<std::size_t>(other - sums.begin());
  const auto first = all[0].get<std::set<std::string>>();
  const auto second = all[place].get<std::set<std::string>>();
  throw ConfigError("[all_reduce] the keys of the metrics differ: only rank 0 has " + missing(first, second) +
                    ", only rank " + std::to_string(place) + " has " + missing(second, first) +
                    "; give the same keys on every rank");
}

Tensor as_tensor(const Bytes& bytes, std::int64_t size) {
  Tensor tensor = ::torch::zeros({size}, ::torch::kUInt8);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

Value as_value(const Tensor& tensor, std::int64_t size) {
  const auto* bytes = tensor.const_data_ptr<std::uint8_t>();
  return Value::from_cbor(bytes, bytes + size);
}

}  // namespace

Tensor all_reduce(const Tensor& tensor, Reduce how) {
  if (!group()) return tensor;
  if (how == Reduce::mean && !tensor.is_floating_point() && !tensor.is_complex())
    throw ConfigError("[all_reduce] the tensor is of a whole-number type, which has no mean; convert it first");
  return in_place(tensor, [&](std::vector<Tensor>& dense) {
    c10d::AllreduceOptions options;
    options.reduceOp = operation(how);
    group()->allreduce(dense, options)->wait();
    if (how == Reduce::mean) dense.front().div_(world_size());
  });
}

Tensor broadcast(const Tensor& tensor, int root) {
  if (root < 0 || root >= world_size())
    throw ConfigError("[broadcast] root is " + std::to_string(root) + ", but there are " +
                      std::to_string(world_size()) + " ranks, from 0 on");
  if (!group()) return tensor;
  return in_place(tensor, [&](std::vector<Tensor>& dense) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group()->broadcast(dense, options)->wait();
  });
}

std::vector<Tensor> all_gather(const Tensor& tensor) {
  const ::torch::NoGradGuard no_grad;
  const Tensor mine = tensor.detach().contiguous();
  if (!group()) return {mine.clone()};
  std::vector<std::vector<Tensor>> found(1);
  for (int each = 0; each < world_size(); ++each) found.front().push_back(::torch::empty_like(mine));
  std::vector<Tensor> inputs{mine};
  group()->allgather(found, inputs)->wait();
  return found.front();
}

void barrier() {
  if (group()) group()->barrier()->wait();
}

Value all_reduce(const Value& metrics, Reduce how) {
  if (!metrics.is_object() && !metrics.is_number() && !metrics.is_boolean())
    throw ConfigError("[all_reduce] got " + metrics.dump().substr(0, 100) +
                      "; it must be a number, or a dict such as {{\"loss\", 0.5}}");
  Value result = metrics;
  std::vector<std::string> names;
  std::vector<double> numbers;
  visit(result, "", [&](const std::string& name, const Value& value) {
    names.push_back(name);
    numbers.push_back(value.is_boolean() ? value.get<bool>() : value.get<double>());
  });
  if (world_size() > 1 && metrics.is_object()) check_equal(names);
  if (!numbers.empty()) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    all_reduce(::torch::from_blob(numbers.data(), {count}, ::torch::kFloat64), how);
  }
  std::size_t next = 0;
  visit(result, "", [&](const std::string&, Value& value) { value = numbers[next++]; });
  return result;
}

Value all_reduce_mean(const Value& metrics) { return all_reduce(metrics, Reduce::mean); }

Value broadcast(const Value& value, int root) {
  const Bytes bytes = rank() == root ? Value::to_cbor(value) : Bytes();
  const Tensor size = broadcast(::torch::tensor(static_cast<std::int64_t>(bytes.size())), root);
  const auto length = size.item<std::int64_t>();
  return as_value(broadcast(as_tensor(bytes, length), root), length);
}

std::vector<Value> all_gather(const Value& value) {
  const Bytes bytes = Value::to_cbor(value);
  const auto sizes = all_gather(::torch::tensor(static_cast<std::int64_t>(bytes.size())));
  std::int64_t longest = 0;
  for (const auto& size : sizes) longest = std::max(longest, size.item<std::int64_t>());
  const auto parts = all_gather(as_tensor(bytes, longest));
  std::vector<Value> values;
  for (std::size_t each = 0; each < parts.size(); ++each)
    values.push_back(as_value(parts[each], sizes[each].item<std::int64_t>()));
  return values;
}

}  // namespace lockstep::torch
