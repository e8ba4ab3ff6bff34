#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tune/scheduler.h"

namespace lockstep::tune {

/// The options in the description of a scheduler or stopper. Null means that an option is left out. Errors name the
/// kind, the option and its value.
class Options {
 public:
  /// Throws ConfigError if `description` has another key than "kind" and `known`.
  Options(const Value& description, std::string_view what, std::vector<std::string> known);

  bool has(const std::string& name) const;
  /// Null if it is left out.
  const Value& value(const std::string& name) const;
  double number(const std::string& name, double otherwise) const;
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  bool flag(const std::string& name, bool otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Throws ConfigError unless `good`: "[tune] max_t of asha is -1; it must be <must>".
  void require(bool good, const std::string& name, std::string_view must) const;

 private:
  const Value& description_;
  std::string kind_;
};

/// The implementations, one file each. Options are checked by them.
std::unique_ptr<Scheduler> make_asha(const Value& description, std::uint64_t seed);
std::unique_ptr<Scheduler> make_hyperband(const Value& description, bool one_by_one);
std::unique_ptr<Scheduler> make_median(const Value& description);
std::unique_ptr<Scheduler> make_pbt(const Value& description, std::uint64_t seed);
std::unique_ptr<Scheduler> make_pbt_replay(const Value& description);

}  // namespace lockstep::tune
