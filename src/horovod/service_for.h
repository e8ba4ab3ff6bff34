#pragma once

#include <memory>

#include "driver/service.h"
#include "store/run_settings.h"

namespace lockstep::horovod {

/// The service that one run of a backend needs; null if it needs none. Throws ConfigError if there is none like it, or
/// if its options are wrong.
std::shared_ptr<driver::Service> service_for(const store::BackendNeeds& needs);

}  // namespace lockstep::horovod
