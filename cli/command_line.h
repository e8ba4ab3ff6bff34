#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "commands.h"
#include "quantities.h"

namespace lockstep::cli {

/// `seconds` is a double, or an optional one; `unit` is that of a bare number.
template <class Seconds>
void add_duration(CLI::App& command, const std::string& name, const std::string& unit, Seconds& seconds,
                  const char* what) {
  command
      .add_option_function<std::string>(
          name, [name, unit, &seconds](const std::string& text) { seconds = parse_duration(text, name, unit); }, what)
      ->type_name("TIME");
}

inline constexpr int kFailed = 1;      ///< exit code
inline constexpr int kWrongUsage = 2;  ///< exit code

/// The parser and the values of its options; `command_` runs the chosen subcommand.
class CommandLine {
 public:
  CommandLine();
  int execute(int argc, char** argv);

 private:
  void add_run();
  void add_engine(CLI::App& command);
  void add_cluster();
  void add_agent();
  void add_submit();
  void add_runs();
  void add_dashboard();
  void add_stop();
  void add_prune();
  void add_logs();
  void add_checkpoint();
  void add_tune();
  void add_new();
  void add_tools();
  void add_tool(CLI::App& parent, const char* name, const char* module, const char* what, const char* examples);
  void add_completion();
  CLI::App* add(CLI::App& parent, const char* name, const char* what, const char* examples);

  CLI::App app_{"Lockstep: train one function on many workers.", "lockstep"};
  std::function<int()> command_;
  std::string run_, project_, shell_, as_ray_;
  EngineOptions engine_;
  RunsOptions runs_;
  DashboardOptions dashboard_;
  StopOptions stop_;
  PruneOptions prune_;
  LogsOptions logs_;
  TuneShowOptions tune_show_;
  TunePlotOptions tune_plot_;
};

}  // namespace lockstep::cli
