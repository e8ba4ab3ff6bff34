#pragma once

#include <string>
#include <string_view>

namespace lockstep::dashboard {

/// The runs of a list, as Catalog::list_json() gives it, in OpenMetrics' text format: for Prometheus and its relatives.
/// Every sample has the run's id as its label `run`.
std::string open_metrics(std::string_view list_json);

}  // namespace lockstep::dashboard
