#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::train {

/// The runs whose callbacks the calling thread is in, outermost first. For a run in its own thread they begin with
/// those whose callbacks started it.
std::vector<std::uint64_t> runs_of_this_thread();

/// A run that the calling thread drives while this exists. For that thread only.
class DrivenRun {
 public:
  /// `within`: the runs whose callbacks started it (runs_of_this_thread() of the thread that did).
  explicit DrivenRun(const std::vector<std::uint64_t>& within);
  ~DrivenRun();
  DrivenRun(const DrivenRun&) = delete;
  DrivenRun& operator=(const DrivenRun&) = delete;

  std::uint64_t id() const { return id_; }

 private:
  std::uint64_t id_;
  std::vector<std::uint64_t> before_;
};

}  // namespace lockstep::train
