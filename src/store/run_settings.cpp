#include "store/run_settings.h"

#include <lockstep/error.h>

#include "base/json.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "store/settings.h"

namespace lockstep::store {
namespace {

template <class T>
Value stored_value(const T& value) {
  return value;
}
Value stored_value(const std::filesystem::path& value) { return value.native(); }
Value stored_value(const std::chrono::duration<double>& value) { return value.count(); }
Value stored_value(const WorkerCount& value) {
  return value.is_elastic() ? Value::array({value.least, value.most}) : Value(value.least);
}
template <class T>
Value stored_value(const std::optional<T>& value) {
  return value ? stored_value(*value) : Value(nullptr);
}

template <class T>
void read_setting(const Value& value, T& field) {
  field = value.get<T>();
}
void read_setting(const Value& value, std::filesystem::path& field) { field = value.get<std::string>(); }
void read_setting(const Value& value, std::chrono::duration<double>& field) {
  field = std::chrono::duration<double>(value.get<double>());
}
void read_setting(const Value& value, WorkerCount& field) {
  field = value.is_array() ? WorkerCount(value.at(0).get<int>(), value.at(1).get<int>()) : value.get<int>();
}
template <class T>
void read_setting(const Value& value, std::optional<T>& field) {
  field.reset();
  if (!value.is_null()) read_setting(value, field.emplace());
}

/// The fields of nested structs are on the same level in the file.
template <class Struct>
void write_settings(const Struct& given, Value& out) {
  each_setting<Struct>([&](const auto& setting) {
    const auto& field = given.*setting.field;
    if constexpr (HasSettings<std::remove_cvref_t<decltype(field)>>)
      write_settings(field, out);
    else if (setting.is_stored)
      out[setting.name] = stored_value(field);
  });
}

template <class Struct>
void read_settings(const Value& in, Struct& given) {
  each_setting<Struct>([&](const auto& setting) {
    auto& field = given.*setting.field;
    if constexpr (HasSettings<std::remove_cvref_t<decltype(field)>>)
      read_settings(in, field);
    else if (const auto found = in.find(setting.name); setting.is_stored && found != in.end())
      read_setting(*found, field);
  });
}

void write_backend(const BackendNeeds& needs, Value& out) {
  Value& backend = out["backend"] = {{"environment", needs.environment}, {"preload", needs.preload}};
  if (!needs.backend_cls.empty()) backend["backend_cls"] = needs.backend_cls;
  for (const auto& [name, options] : needs.services) {
    backend["services"].push_back(name);
    out[name] = options;
  }
  if (needs.replace_workers) out["replace_workers"] = true;
}

BackendNeeds read_backend(const Value& backend, const Value& in) {
  BackendNeeds needs;
  needs.environment = backend.value("environment", needs.environment);
  needs.preload = backend.value("preload", needs.preload);
  needs.backend_cls = backend.value("backend_cls", "");
  for (const auto& name : backend.value("services", std::vector<std::string>())) needs.services[name] = in.at(name);
  needs.replace_workers = in.value("replace_workers", false);
  return needs;
}

}  // namespace

Value to_value(const RunSettings& settings) {
  Value out = Value::object();
  write_settings(settings.scaling, out);
  write_settings(settings.run, out);
  if (settings.backend) write_backend(*settings.backend, out);
  return out;
}

Value to_value(const DataConfig& config) {
  Value out = Value::object();
  write_settings(config, out);
  return out;
}

Value to_value(const EngineConfig& engine) {
  Value out = Value::object();
  write_settings(engine, out);
  return out;
}

void read_engine_settings(const Value& in, EngineConfig& engine) { read_settings(in, engine); }

RunSettings run_settings_from(const Value& config_run) {
  return read_as_written("run.json", [&] {
    RunSettings settings;
    read_settings(config_run, settings.scaling);
    read_settings(config_run, settings.run);
    if (const auto backend = config_run.find("backend"); backend != config_run.end())
      settings.backend = read_backend(*backend, config_run);
    return settings;
  });
}

RunSettings read_run_settings(const std::filesystem::path& path) {
  const RunDirectory directory(path);
  if (!directory.exists()) throw ConfigError("[restore] " + path.string() + " holds no run: it has no run.json");
  return run_settings_from(RunRecord::from_value(directory.read_run_json()).config_run);
}

}  // namespace lockstep::store
