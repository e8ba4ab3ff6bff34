#pragma once

#include <lockstep/callback.h>
#include <optional>
#include <string>

namespace lockstep {

/// Ends a run when a metric stops improving: after `patience` results of rank 0 in a row that are not better than the
/// best before. Results without the metric do not count; NaN is never better.
///
///     lockstep::EarlyStopping early({.metric = "validation/loss", .patience = 3});
///     lockstep::DataParallelTrainer(train, {.run{.callbacks = {&early}}}).fit();
class EarlyStopping : public Callback {
 public:
  struct Options {
    std::string metric;        ///< nested: "validation/loss"
    int patience = 1;          ///< 0 means 1
    std::string mode = "min";  ///< "max": greater is better
    double min_delta = 0;      ///< an improvement must be larger than this
  };

  /// Throws ConfigError that names the option, its value and what is allowed.
  explicit EarlyStopping(Options options);

  std::string name() const override { return "EarlyStopping"; }
  bool may_stop() const override { return true; }
  void on_start(const RunInfo&) override { reset(); }
  bool should_stop(const Value& metrics) override;

  /// Forgets the results so far.
  void reset();
  /// The best value so far.
  std::optional<double> best() const { return best_; }

 private:
  Options options_;
  std::optional<double> best_;
  int waited_ = 0;
  bool warned_ = false;
};

}  // namespace lockstep
