#include "driver/preemption.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/text.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep::driver {
namespace {

constexpr auto kEvery = 1s;
/// A command that runs longer is killed; its answer would come too late.
constexpr auto kLongestCommand = 10s;
constexpr std::size_t kMostText = 100;
constexpr std::string_view kFile = "file:";

std::optional<Seconds> seconds_in(const std::string& text) {
  double number = 0;
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return std::nullopt;
  const auto read = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  const bool is_one =
      read.ec == std::errc() && std::isfinite(number) && number >= 0 &&
      text.find_first_not_of(" \t\n", static_cast<std::size_t>(read.ptr - text.data())) == std::string::npos;
  return is_one ? std::optional(Seconds(number)) : std::nullopt;
}

/// The file's first bytes; nothing if it is not there.
std::optional<std::string> contents_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  std::string text(kMostText, '\0');
  std::ifstream in(path);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

/// What the command printed; nothing unless it ended with 0.
std::optional<std::string> output_of(const std::string& command) {
  auto [mine, theirs] = sys::pipe_pair();
  sys::SpawnOptions options;
  options.argv = {"/bin/sh", "-c", command};
  options.fds = {{theirs.get(), 1}};
  options.own_session = true;
  options.parent_death_signal = SIGKILL;
  const sys::Process process = sys::spawn(options);
  theirs.reset();
  std::string text;
  std::array<char, kMostText> buffer;
  const Instant end = now() + kLongestCommand;
  for (pollfd item{mine.get(), POLLIN, 0};;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    if (left <= 0 || ::poll(&item, 1, static_cast<int>(left)) == 0) break;
    const ssize_t size = ::read(mine.get(), buffer.data(), buffer.size());
    if (size <= 0) break;
    if (text.size() < kMostText) text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  pollfd ended{process.pidfd.get(), POLLIN, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
  if (::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) != 1) ::kill(-process.pid, SIGKILL);
  const auto status = sys::take_exit(process.pidfd.get(), true);
  return status == sys::ExitStatus{} ? std::optional(text) : std::nullopt;
}

}  // namespace

bool is_preemption_notice(int signal, const RunConfig& run) {
  if (signal == SIGUSR1) return true;
  return signal == SIGTERM && (!run.preemption.empty() || std::getenv("SLURM_JOB_ID") != nullptr ||
                               std::getenv("KUBERNETES_SERVICE_HOST") != nullptr);
}

PreemptionWatch::PreemptionWatch(const std::string& notice)
    : notice_(notice.starts_with(kFile) ? notice.substr(kFile.size()) : notice),
      is_command_(!notice.starts_with(kFile) && notice.find(' ') != std::string::npos) {
  if (notice_.empty()) return;
  event_ = sys::event_descriptor();
  thread_ = std::thread([this] { watch(); });
}

PreemptionWatch::~PreemptionWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<std::string> PreemptionWatch::look() const {
  try {
    return is_command_ ? output_of(notice_) : contents_of(notice_);
  } catch (const Error&) {
    return std::nullopt;  // no process can be started now
  }
}

void PreemptionWatch::watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (std::unique_lock lock(mutex_); !stop_; changed_.wait_for(lock, kEvery, [&] { return stop_; })) {
    lock.unlock();
    const auto text = look();
    lock.lock();
    if (!text) continue;
    found_ = {is_command_ ? "the command " + in_quotes(notice_) + " tells so" : "the file " + notice_ + " is there",
              seconds_in(*text)};
    ::eventfd_write(event_.get(), 1);
    return;
  }
}

PreemptionWatch::Notice PreemptionWatch::take() {
  eventfd_t count = 0;
  ::eventfd_read(event_.get(), &count);
  const std::lock_guard lock(mutex_);
  return found_;
}

}  // namespace lockstep::driver
