#include "horovod/service_for.h"

#include <lockstep/error.h>

#include <utility>

#include "base/text.h"
#include "horovod/rendezvous.h"

namespace lockstep::horovod {

std::shared_ptr<driver::Service> service_for(const store::BackendNeeds& needs) {
  for (const auto& [name, ignored] : needs.services)
    if (name != kRendezvous)
      throw ConfigError("[backend] there is no service " + in_quotes(name) + "; a backend may ask for " +
                        in_quotes(kRendezvous));
  if (needs.services.empty()) return nullptr;
  const Value& given = needs.services.at(kRendezvous);
  RendezvousOptions options;
  options.elastic = needs.replace_workers;
  try {
    options.hosts = given.at("hosts");
    const Value least = given.value("min_workers", Value(0));
    options.min_workers = least.is_null() ? 0 : least.get<int>();
  } catch (const Value::exception& error) {
    throw ConfigError("[backend] the options of the service " + in_quotes(kRendezvous) + " are " + given.dump() +
                      "; they must be a list of `hosts` and perhaps a number `min_workers`: " + error.what());
  }
  return std::make_shared<Rendezvous>(std::move(options));
}

}  // namespace lockstep::horovod
