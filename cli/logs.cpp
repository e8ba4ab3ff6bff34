#include <lockstep/error.h>

#include "base/text.h"
#include "commands.h"
#include "log_follower.h"
#include "output_style.h"
#include "run_summary.h"
#include "store/address.h"

namespace lockstep::cli {
namespace {

void check_that_there_are_logs(const LogFollower& logs, const LogsOptions& options) {
  if (logs.has_files()) return;
  if (options.rank) {
    const std::string ranks = listed(logs.ranks_on_disk());
    throw ConfigError("[logs] rank " + std::to_string(*options.rank) + " of " + in_quotes(options.run) +
                      " has no log; ranks with one: " + ranks);
  }
  throw ConfigError("[logs] " + in_quotes(options.run) + " has no logs yet; -f waits for them");
}

}  // namespace

int logs(const LogsOptions& options) {
  const auto path = find_run(options.run, Needs::logs);
  LogFollower logs(path, options.rank, OutputStyle::of_stdout());
  if (options.follow && store::is_address(options.run) && read_run(path).state == "running")
    throw ConfigError("[logs] -f cannot follow a run in an object store, which gets its logs every 10 s; leave it out");
  if (options.follow)
    logs.follow();
  else
    logs.print_all();
  // Reported last: a run that has just started has no logs, and -f has then waited for them.
  check_that_there_are_logs(logs, options);
  return 0;
}

}  // namespace lockstep::cli
