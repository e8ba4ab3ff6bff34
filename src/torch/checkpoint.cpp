#include <lockstep/error.h>
#include <lockstep/torch/checkpoint.h>
#include <lockstep/torch/model.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>

namespace lockstep::torch {
namespace {

namespace optim = ::torch::optim;
using ::torch::Tensor;

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
/// The prefix that Python's DistributedDataParallel adds to its model's names.
constexpr std::string_view kPrefix = "module.";

[[noreturn]] void refuse(const std::string& what) { throw ConfigError("[checkpoint] " + what); }

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > 8 ? text + ", ... (" + std::to_string(names.size()) + ")" : text;
}

// ---------------------------------------------------------------------------------------------------- tensors

const std::map<std::string, ::torch::ScalarType>& types() {
  static const std::map<std::string, ::torch::ScalarType> known{
      {"F64", ::torch::kFloat64},        {"F32", ::torch::kFloat32},      {"F16", ::torch::kFloat16},
      {"BF16", ::torch::kBFloat16},      {"I64", ::torch::kInt64},        {"I32", ::torch::kInt32},
      {"I16", ::torch::kInt16},          {"I8", ::torch::kInt8},          {"U64", ::torch::kUInt64},
      {"U32", ::torch::kUInt32},         {"U16", ::torch::kUInt16},       {"U8", ::torch::kUInt8},
      {"BOOL", ::torch::kBool},          {"C64", ::torch::kComplexFloat}, {"F8_E4M3", ::torch::kFloat8_e4m3fn},
      {"F8_E5M2", ::torch::kFloat8_e5m2}};
  return known;
}

std::string word_of(const Tensor& tensor, const std::string& name) {
  for (const auto& [word, type] : types())
    if (type == tensor.scalar_type()) return word;
  refuse("the tensor " + name + " is of type " + ::torch::toString(tensor.scalar_type()) +
         ", which the file format lacks; convert it before it is saved");
}

/// Collects tensors; shared memory is stored once.
class TensorWriter {
 public:
  Value add(const std::string& name, const Tensor& tensor) {
    auto& stored = names_[{tensor.unsafeGetTensorImpl(), tensor.is_sparse() ? nullptr : tensor.data_ptr()}];
    if (stored.empty()) {
      stored = name;
      tensors_.emplace_back(name, tensor.detach().to(::torch::kCPU).contiguous());
    }
    return {{"$tensor", stored}, {"kind", "torch"}};
  }

  Checkpoint finish(const Value& data) const {
    std::vector<lockstep::Tensor> borrowed;
    for (const auto& [name, tensor] : tensors_)
      borrowed.push_back({name,
                          word_of(tensor, name),
                          tensor.sizes().vec(),
                          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
    return Checkpoint::from_dict(data, borrowed);
  }

 private:
  std::map<std::pair<const void*, const void*>, std::string> names_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

std::vector<std::int64_t> numbers(const Value& entry, const char* key, const std::string& name) {
  const Value& found = entry.at(key);
  std::vector<std::int64_t> values;
  if (found.is_array())
    for (const auto& each : found)
      if (each.is_number_integer() && each.get<std::int64_t>() >= 0) values.push_back(each.get<std::int64_t>());
  if (!found.is_array() || values.size() != found.size())
    throw StorageError("[checkpoint] the array " + name + " has a " + key + " that is not a list of counts");
  return values;
}

std::int64_t extent(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) return 0;
    last += (shape[axis] - 1) * strides[axis];
  }
  return last + 1;
}

/// Reads the tensors that entries of data.json refer to.
class TensorReader {
 public:
  explicit TensorReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    for (auto& tensor : checkpoint.tensors()) stored_.emplace(tensor.name, tensor);
  }

  static bool is_tensor(const Value& entry) { return entry.is_object() && entry.contains("$tensor"); }

  /// The checkpoint owns its memory; it is only read.
  Tensor read(const Value& entry) const {
    const auto name = entry.at("$tensor").is_string() ? entry.at("$tensor").get<std::string>() : std::string();
    const auto found = stored_.find(name);
    if (found == stored_.end()) throw StorageError("[checkpoint] tensors.safetensors has no array \"" + name + "\"");
    const lockstep::Tensor& stored = found->second;
    const auto type = types().find(stored.dtype);
    if (type == types().end() || entry.contains("dtype"))
      refuse("the array " + name + " is of a type that C++ does not read (" + entry.value("dtype", stored.dtype) + ")");
    Tensor whole = ::torch::empty(stored.shape, type->second);
    if (!stored.bytes.empty()) std::memcpy(whole.data_ptr(), stored.bytes.data(), stored.bytes.size());
    return viewed(whole, entry, name);
  }

 private:
  /// The part that an entry refers to, if it is not the whole array in C order.
  static Tensor viewed(const Tensor& whole, const Value& entry, const std::string& name) {
    const bool has_layout = entry.contains("layout");
    if (!has_layout && !entry.contains("shape") && !entry.contains("stride") && !entry.contains("offset")) return whole;
    Tensor memory = whole.reshape({-1});
    std::vector<std::int64_t> layout = whole.strides().vec();
    if (has_layout) {
      layout = numbers(entry, "layout", name);
      if (layout.size() != static_cast<std::size_t>(whole.dim()) ||
          extent(whole.sizes().vec(), layout) > 4 * whole.numel())
        throw StorageError("[checkpoint] the array " + name + " has a layout that does not fit its shape");
      memory = ::torch::zeros({extent(whole.sizes().vec(), layout)}, whole.options());
      memory.as_strided(whole.sizes(), layout).copy_(whole);
    }
    auto shape = entry.contains("shape") ? numbers(entry, "shape", name) : whole.sizes().vec();
    auto strides = entry.contains("shape") ? ::torch::empty(shape, ::torch::kMeta).strides().vec() : layout;
    if (entry.contains("stride")) strides = numbers(entry, "stride", name);
    const auto offset = entry.value("offset", std::int64_t{0});
    if (shape.size() != strides.size() || offset < 0 || offset + extent(shape, strides) > memory.numel())
      throw StorageError("[checkpoint] data.json asks for more of the array " + name + " than there is");
    return memory.as_strided(shape, strides, offset);
  }

  const Checkpoint checkpoint_;  ///< keeps the bytes
  std::map<std::string, lockstep::Tensor> stored_;
};

// ---------------------------------------------------------------------------------------------------- optimizers

/// The fields of options and states, under Python's names. LibTorch returns references to them.
template <class V>
void visit(optim::SGDOptions& o, V&& v) {
  v("lr", o.lr()), v("momentum", o.momentum()), v("dampening", o.dampening()), v("weight_decay", o.weight_decay()),
      v("nesterov", o.nesterov());
}
template <class O, class V>
requires std::is_same_v<O, optim::AdamOptions> || std::is_same_v<O, optim::AdamWOptions>
void visit(O& o, V&& v) {
  v("lr", o.lr()), v("betas", o.betas()), v("eps", o.eps()), v("weight_decay", o.weight_decay()),
      v("amsgrad", o.amsgrad());
}
template <class V>
void visit(optim::RMSpropOptions& o, V&& v) {
  v("lr", o.lr()), v("alpha", o.alpha()), v("eps", o.eps()), v("weight_decay", o.weight_decay()),
      v("momentum", o.momentum()), v("centered", o.centered());
}
template <class V>
void visit(optim::AdagradOptions& o, V&& v) {
  v("lr", o.lr()), v("lr_decay", o.lr_decay()), v("weight_decay", o.weight_decay()),
      v("initial_accumulator_value", o.initial_accumulator_value()), v("eps", o.eps());
}
template <class V>
void visit(optim::SGDParamState& s, V&& v) {
  v("momentum_buffer", s.momentum_buffer());
}
template <class S, class V>
requires std::is_same_v<S, optim::AdamParamState> || std::is_same_v<S, optim::AdamWParamState>
void visit(S& s, V&& v) {
  v("step", s.step()), v("exp_avg", s.exp_avg()), v("exp_avg_sq", s.exp_avg_sq()),
      v("max_exp_avg_sq", s.max_exp_avg_sq());
}
template <class V>
void visit(optim::RMSpropParamState& s, V&& v) {
  v("step", s.step()), v("square_avg", s.square_avg()), v("momentum_buffer", s.momentum_buffer()),
      v("grad_avg", s.grad_avg());
}
template <class V>
void visit(optim::AdagradParamState& s, V&& v) {
  v("step", s.step()), v("sum", s.sum());
}

/// Calls `use` with the optimizer's name and its types of options and state.
template <class Use>
void by_kind(const optim::Optimizer& optimizer, Use use) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr)
    return use.template operator()<optim::SGDOptions, optim::SGDParamState>("SGD");
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr)
    return use.template operator()<optim::AdamOptions, optim::AdamParamState>("Adam");
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr)
    return use.template operator()<optim::AdamWOptions, optim::AdamWParamState>("AdamW");
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr)
    return use.template operator()<optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop");
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr)
    return use.template operator()<optim::AdagradOptions, optim::AdagradParamState>("Adagrad");
  if (dynamic_cast<const optim::LBFGS*>(&optimizer) != nullptr)
    refuse(
        "the history of torch::optim::LBFGS cannot be stored; use checkpoint(module) and load(checkpoint, module) "
        "without the optimizer, which then starts without state");
  refuse("this optimizer is none of SGD, Adam, AdamW, RMSprop and Adagrad; save its state yourself");
}

Value to_value(double number) { return number; }
Value to_value(bool flag) { return flag; }
Value to_value(const std::tuple<double, double>& pair) { return Value::array({std::get<0>(pair), std::get<1>(pair)}); }

void assign(double& number, const Value& value) { number = value.get<double>(); }
void assign(bool& flag, const Value& value) { flag = value.get<bool>(); }
void assign(std::tuple<double, double>& pair, const Value& value) {
  pair = {value.at(0).get<double>(), value.at(1).get<double>()};
}

/// The user's module, and its tensors by name.
const ::torch::nn::Module& bare(const ::torch::nn::Module& module) {
  const auto* prepared = dynamic_cast<const PreparedModule*>(&module);
  return prepared != nullptr ? prepared->wrapped() : module;
}

std::vector<std::pair<std::string, Tensor>> state_of(const ::torch::nn::Module& module) {
  std::vector<std::pair<std::string, Tensor>> found;
  for (const auto& item : bare(module).named_parameters())
    if (item.value().defined()) found.emplace_back(item.key(), item.value());
  for (const auto& item : bare(module).named_buffers())
    if (item.value().defined()) found.emplace_back(item.key(), item.value());
  return found;
}

/// The names of the optimizer's parameters, group by group.
std::vector<std::vector<std::string>> parameter_names(const ::torch::nn::Module& module,
                                                      const optim::Optimizer& optimizer) {
  std::map<const void*, std::string> names;
  for (const auto& item : bare(module).named_parameters())
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<std::vector<std::string>> groups;
  for (const auto& group : optimizer.param_groups()) {
    auto& mine = groups.emplace_back();
    for (const auto& parameter : group.params()) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end())
        refuse("parameter " + std::to_string(mine.size()) + " of the optimizer's group " +
               std::to_string(groups.size() - 1) + " is none of the module's; save the module that has them all");
      mine.push_back(found->second);
    }
  }
  return groups;
}

Value optimizer_value(const ::torch::nn::Module& module, const optim::Optimizer& optimizer, TensorWriter& tensors) {
  const auto names = parameter_names(module, optimizer);
  Value states = Value::object(), groups = Value::array();
  by_kind(optimizer, [&]<class Options, class State>(const char*) {
    for (std::size_t g = 0; g < names.size(); ++g) {
      const auto& group = optimizer.param_groups()[g];
      Value saved = Value::object();
      Options options = static_cast<const Options&>(group.options());
      visit(options, [&](const char* key, auto& field) { saved[key] = to_value(field); });
      saved["params"] = names[g];
      groups.push_back(std::move(saved));
      for (std::size_t p = 0; p < names[g].size(); ++p) {
        const auto found = optimizer.state().find(group.params()[p].unsafeGetTensorImpl());
        if (found == optimizer.state().end()) continue;
        State state = static_cast<const State&>(*found->second);
        Value fields = Value::object();
        visit(state, [&]<class F>(const char* key, F& field) {
          if constexpr (!std::is_same_v<F, Tensor>)
            fields[key] = field;
          else if (field.defined())
            fields[key] = tensors.add("optimizer.state." + names[g][p] + "." + key, field);
        });
        states[names[g][p]] = std::move(fields);
      }
    }
  });
  return {{"state", std::move(states)}, {"param_groups", std::move(groups)}};
}

/// The saved state for each parameter of the optimizer, group by group; null if there is none.
struct SavedOptimizer {
  std::vector<const Value*> groups;
  std::vector<std::vector<const Value*>> states;
};

/// The key of a parameter's state: its name, or, as text, the number that Python gave it.
std::string key_of(const Value& parameter) {
  return parameter.is_string() ? parameter.get<std::string>() : parameter.dump();
}

SavedOptimizer match(const Value& saved, const std::vector<std::vector<std::string>>& names) {
  const auto bad = [] {
    refuse("\"optimizer\" is not what optimizer.state_dict() or lockstep::torch::checkpoint() gives");
  };
  if (!saved.is_object() || !saved.contains("state") || !saved.contains("param_groups")) bad();
  const Value &states = saved["state"], &groups = saved["param_groups"];
  if (!states.is_object() || !groups.is_array()) bad();
  if (groups.size() != names.size())
    refuse("it holds an optimizer with " + std::to_string(groups.size()) + " parameter groups; this one has " +
           std::to_string(names.size()));
  SavedOptimizer found;
  for (std::size_t g = 0; g < names.size(); ++g) {
    const Value& group = groups[g];
    if (!group.is_object() || !group.contains("params") || !group["params"].is_array()) bad();
    const Value& parameters = group["params"];
    if (parameters.size() != names[g].size())
      refuse("group " + std::to_string(g) + " of the saved optimizer has " + std::to_string(parameters.size()) +
             " parameters; this one's has " + std::to_string(names[g].size()));
    if (group.value("maximize", Value()) == true) refuse("the saved optimizer maximizes, which LibTorch's does not");
    // By name if there are names; Python may have numbered the parameters and stored the names separately.
    const Value& labels = group.contains("param_names") ? group["param_names"] : parameters;
    std::map<std::string, std::string> keys;
    for (std::size_t p = 0; p < parameters.size() && labels.is_array() && labels.size() == parameters.size(); ++p)
      if (labels[p].is_string()) keys[labels[p].get<std::string>()] = key_of(parameters[p]);
    auto& mine = found.states.emplace_back();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!keys.empty() && !keys.contains(names[g][p]))
        refuse("the saved optimizer has no parameter " + names[g][p] + " in group " + std::to_string(g));
      const std::string key = keys.empty() ? key_of(parameters[p]) : keys[names[g][p]];
      const auto state = states.find(key);
      mine.push_back(state == states.end() || state->empty() ? nullptr : &*state);
    }
    found.groups.push_back(&group);
  }
  return found;
}

/// The new state of the optimizer, read and checked before anything is changed.
std::function<void()> prepared_optimizer(const Value& saved, const TensorReader& tensors,
                                         const ::torch::nn::Module& module, optim::Optimizer& optimizer) {
  const auto names = parameter_names(module, optimizer);
  const SavedOptimizer found = match(saved, names);
  std::vector<std::function<void()>> changes;
  by_kind(optimizer, [&]<class Options, class State>(const char* kind) {
    for (std::size_t g = 0; g < names.size(); ++g) {
      auto& group = optimizer.param_groups()[g];
      Options options = static_cast<const Options&>(group.options());
      visit(options, [&](const char* key, auto& field) {
        if (!found.groups[g]->contains(key)) return;
        try {
          assign(field, (*found.groups[g])[key]);
        } catch (const Value::exception&) {
          refuse("group " + std::to_string(g) + " of the saved optimizer has " + key + "=" +
                 (*found.groups[g])[key].dump().substr(0, 100) + ", which " + kind + " cannot take");
        }
      });
      changes.emplace_back([&group, options] { static_cast<Options&>(group.options()) = options; });
      for (std::size_t p = 0; p < names[g].size(); ++p) {
        const Tensor parameter = group.params()[p];
        const Value* fields = found.states[g][p];
        if (fields == nullptr) {
          changes.emplace_back([&optimizer, parameter] { optimizer.state().erase(parameter.unsafeGetTensorImpl()); });
          continue;
        }
        auto state = std::make_shared<State>();
        std::set<std::string> unknown;
        for (const auto& item : fields->items())
          if (!item.value().is_null()) unknown.insert(item.key());
        visit(*state, [&]<class F>(const char* key, F& field) {
          if (unknown.erase(key) == 0) return;
          const Value& entry = (*fields)[key];
          if constexpr (!std::is_same_v<F, Tensor>) {
            field = TensorReader::is_tensor(entry) ? static_cast<F>(tensors.read(entry).template item<double>())
                                                   : static_cast<F>(entry.get<double>());
          } else {
            if (!TensorReader::is_tensor(entry))
              refuse("the state " + std::string(key) + " of " + names[g][p] + " is not a tensor");
            field = tensors.read(entry).to(parameter.options().requires_grad(false)).clone();
            if (field.sizes() != parameter.sizes())
              refuse("the state " + std::string(key) + " of " + names[g][p] + " has another shape than the parameter");
          }
        });
        if (!unknown.empty())
          refuse("the saved optimizer has the state " + *unknown.begin() + " of " + names[g][p] + ", which " + kind +
                 " does not have; make the optimizer that was saved");
        changes.emplace_back([&optimizer, parameter, state] {
          optimizer.state()[parameter.unsafeGetTensorImpl()] = std::make_unique<State>(*state);
        });
      }
    }
  });
  return [changes = std::move(changes)] {
    for (const auto& change : changes) change();
  };
}

/// The values for a module's tensors, all checked.
std::vector<std::pair<Tensor, Tensor>> prepared_module(const Value& saved, const std::string& key,
                                                       const TensorReader& tensors, const ::torch::nn::Module& module) {
  if (!saved.is_object())
    refuse("\"" + key + "\" is not a dict of tensors; save model.state_dict(), or lockstep::torch::checkpoint(model)");
  if (saved.contains("$object") || saved.contains("$tensor"))
    refuse("\"" + key + "\" is a pickled object of Python's, which C++ does not read; save model.state_dict()");
  const auto own = state_of(module);
  const auto prefixed = [](const auto& names) {
    return !names.empty() &&
           std::all_of(names.begin(), names.end(), [](const auto& name) { return name.starts_with(kPrefix); });
  };
  std::vector<std::string> own_names, saved_names;
  for (const auto& [name, tensor] : own) own_names.push_back(name);
  for (const auto& item : saved.items()) saved_names.push_back(item.key());
  const std::string prefix(prefixed(saved_names) && !prefixed(own_names) ? kPrefix : "");

  std::set<std::string> left(saved_names.begin(), saved_names.end());
  std::vector<std::string> missing;
  std::vector<std::pair<Tensor, Tensor>> values;
  for (const auto& [name, tensor] : own) {
    if (left.erase(prefix + name) == 0) {
      missing.push_back(name);
      continue;
    }
    const Value& entry = saved[prefix + name];
    if (!TensorReader::is_tensor(entry)) refuse("\"" + key + "\" has no tensor under " + prefix + name);
    Tensor value = tensors.read(entry);
    if (value.sizes() != tensor.sizes())
      refuse(name + " has the shape " + c10::str(value.sizes()) + " in the checkpoint, but " +
             c10::str(tensor.sizes()) + " in this module");
    values.emplace_back(tensor, std::move(value));
  }
  if (!missing.empty()) refuse("it has no " + listed(missing) + ", which this module has");
  if (!left.empty()) refuse("it has " + listed({left.begin(), left.end()}) + ", which this module does not have");
  return values;
}

/// The requested key, or the first of `usual` that the dict has; "" if there is none.
std::string key_in(const Value& data, const std::optional<std::string>& wanted, const std::vector<std::string>& usual) {
  for (const auto& key : wanted ? std::vector{*wanted} : usual)
    if (data.contains(key)) return key;
  return "";
}

Value load_all(const Checkpoint& checkpoint, ::torch::nn::Module& module, optim::Optimizer* optimizer,
               const CheckpointKeys& keys) {
  Value data = checkpoint.to_dict();
  const std::string model_key = key_in(data, keys.model, {kModel, "model_state_dict", "state_dict"});
  const std::string optimizer_key = key_in(data, keys.optimizer, {kOptimizer, "optimizer_state_dict"});
  const auto check_there = [&](const std::string& found, const std::string& wanted) {
    std::vector<std::string> there;
    for (const auto& item : data.items()) there.push_back(item.key());
    if (found.empty())
      refuse("it has no \"" + wanted + "\" but " + (there.empty() ? "nothing" : listed(there)) +
             "; report lockstep::torch::checkpoint(module, optimizer), or name its key in CheckpointKeys");
  };
  check_there(model_key, keys.model.value_or(kModel));
  if (optimizer != nullptr) check_there(optimizer_key, keys.optimizer.value_or(kOptimizer));
  const TensorReader tensors(checkpoint);
  const auto values = prepared_module(data[model_key], model_key, tensors, module);
  const std::function<void()> change =
      optimizer != nullptr ? prepared_optimizer(data[optimizer_key], tensors, module, *optimizer) : [] {};
  const ::torch::NoGradGuard no_grad;
  for (const auto& [target, value] : values) target.copy_(value);
  change();
  for (const auto& key : {model_key, optimizer_key}) data.erase(key);
  return data;
}

Checkpoint save_all(const ::torch::nn::Module& module, const optim::Optimizer* optimizer, Value data) {
  if (!data.is_object())
    refuse("extra is " + data.dump().substr(0, 100) + "; it must be a dict such as {{\"epoch\", 3}}");
  for (const char* key : {kModel, kOptimizer})
    if (data.contains(key)) refuse(std::string("extra has the key \"") + key + "\", which is Lockstep's; use another");
  TensorWriter tensors;
  Value& state = data[kModel] = Value::object();
  for (const auto& [name, tensor] : state_of(module)) state[name] = tensors.add("model." + name, tensor);
  if (optimizer != nullptr) data[kOptimizer] = optimizer_value(module, *optimizer, tensors);
  return tensors.finish(data);
}

}  // namespace

Checkpoint checkpoint(const ::torch::nn::Module& module, const optim::Optimizer& optimizer, const Value& extra) {
  return save_all(module, &optimizer, extra);
}

Checkpoint checkpoint(const ::torch::nn::Module& module, const Value& extra) {
  return save_all(module, nullptr, extra);
}

const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, optim::Optimizer& optimizer,
                 const CheckpointKeys& keys) {
  return load_all(checkpoint, module, &optimizer, keys);
}

const Value load(const Checkpoint& checkpoint, ::torch::nn::Module& module, const CheckpointKeys& keys) {
  return load_all(checkpoint, module, nullptr, keys);
}

Tensor get_tensor(const Checkpoint& checkpoint, const Value& entry) {
  if (!TensorReader::is_tensor(entry))
    refuse("get_tensor() got " + entry.dump().substr(0, 100) + ", which stands for no tensor");
  return TensorReader(checkpoint).read(entry).clone();
}

}  // namespace lockstep::torch
