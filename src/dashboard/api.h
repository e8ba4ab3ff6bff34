#pragma once

#include <string>

#include "dashboard/catalog.h"
#include "dashboard/experiments.h"
#include "dashboard/http.h"
#include "dashboard/series.h"
#include "sys/beneath_files.h"

namespace lockstep::dashboard {

/// What the server answers: the page at `/`, and what the page reads. Any thread may call.
///
///     /metrics                                  all runs, for Prometheus; needs the token too
///     /api/list?id=ID&...                       the list of runs and experiments; of all without `id`
///     /api/run?id=ID                            one run
///     /api/series?id=ID&from=ROW&generation=N   its reports as columns, from a row on
///     /api/extremes?id=ID                       the least and the greatest of each reported number: {name: [min, max]}
///     /api/resources?id=ID                      what its workers use now
///     /api/log?id=ID&name=FILE&from=BYTE&most=N a piece of a log
///     /api/experiment?id=ID                     one experiment and its trials
///     /api/plot?id=ID&kind=importance|pareto&metric=M&x=X&y=Y
class Api {
 public:
  Api(sys::BeneathFiles& files, Catalog& catalog)
      : files_(files), catalog_(catalog), series_(files), experiments_(files) {}

  Response answer(const Request& request);

 private:
  Response data(const Request& request);

  sys::BeneathFiles& files_;
  Catalog& catalog_;
  SeriesCache series_;
  Experiments experiments_;
};

}  // namespace lockstep::dashboard
