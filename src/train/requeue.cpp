#include "train/requeue.h"

#include <lockstep/error.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep::train {
namespace {

/// A controller of Slurm that does not answer must not keep the program from ending.
constexpr auto kPatience = 10s;

struct Answer {
  bool is_good = false;
  std::string text;
};

/// What a program prints until its end.
Answer ask(std::vector<std::string> argv) {
  auto [mine, theirs] = sys::pipe_pair();
  sys::SpawnOptions options;
  options.argv = std::move(argv);
  options.fds = {{theirs.get(), 1}, {theirs.get(), 2}};
  const sys::Process process = sys::spawn(options);
  theirs.reset();
  Answer answer;
  const Instant end = now() + kPatience;
  std::array<char, 4096> buffer;
  for (pollfd item{mine.get(), POLLIN, 0};;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    const int ready = left > 0 ? ::poll(&item, 1, static_cast<int>(left)) : 0;
    if (ready < 0) continue;  // a signal
    const ssize_t size = ready == 0 ? -1 : ::read(mine.get(), buffer.data(), buffer.size());
    if (size > 0) {
      answer.text.append(buffer.data(), static_cast<std::size_t>(size));
      continue;
    }
    if (size < 0) sys::send_signal(process.pidfd.get(), SIGKILL);
    break;
  }
  answer.is_good = sys::take_exit(process.pidfd.get(), true) == sys::ExitStatus{};
  return answer;
}

}  // namespace

void requeue_slurm_job(int signal) {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || *job == '\0') return;
  try {
    if (signal == SIGTERM && ask({"scontrol", "show", "job", job}).text.find("JobState=CANCELLED") != std::string::npos)
      return;
    const Answer answer = ask({"scontrol", "requeue", job});
    if (!answer.is_good) log_warning("scontrol requeue " + std::string(job) + " failed: " + answer.text);
  } catch (const Error& error) {
    log_warning("the Slurm job " + std::string(job) + " is not requeued: " + error.what());
  }
}

}  // namespace lockstep::train
