#include "engine/program.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

/// Output beyond this is forgotten when somebody looks at it.
constexpr off_t kMuchOutput = 64 << 10;
constexpr std::size_t kLastLines = 10;
constexpr std::size_t kLongestInput = 4096;  // what any pipe takes without waiting

/// A file in memory that grows with each write, whoever makes it.
sys::Descriptor output_file() {
  sys::Descriptor file(::memfd_create("lockstep-output", MFD_CLOEXEC));
  if (!file || ::fcntl(file.get(), F_SETFL, O_APPEND) != 0)
    throw EngineError(std::string("[engine] no memory for the output of a program: ") + std::strerror(errno));
  return file;
}

std::string contents_of(const sys::Descriptor& file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size; (size = ::pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(size));
  return text;
}

/// Its lines that are not empty.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();  // as ssh ends its lines
    if (!line.empty()) lines.push_back(printable(line));
  }
  return lines;
}

}  // namespace

Program::Program(const Options& options) : output_(output_file()), errors_(output_file()), owner_(::getpid()) {
  if (options.input.size() > kLongestInput) throw InternalError("[engine] too much input for " + options.argv.at(0));
  auto [theirs, ours] = sys::pipe_pair();
  // Cannot fail for want of a reader: we still hold the other end.
  if (::write(ours.get(), options.input.data(), options.input.size()) != static_cast<ssize_t>(options.input.size()))
    throw EngineError(std::string("[engine] a pipe takes no input: ") + std::strerror(errno));
  if (options.keep_input) input_ = std::move(ours);
  sys::SpawnOptions spawned;
  spawned.argv = options.argv;
  spawned.env = options.env;
  spawned.cwd = options.cwd;
  spawned.fds = {{theirs.get(), 0}, {output_.get(), 1}, {errors_.get(), 2}};
  spawned.fds.insert(spawned.fds.end(), options.fds.begin(), options.fds.end());
  spawned.own_session = true;
  process_ = sys::spawn(spawned);
}

Program::~Program() {
  if (status_ || owner_ != ::getpid()) return;
  signal(SIGKILL);
  sys::take_exit(process_.pidfd.get(), true);
}

std::optional<sys::ExitStatus> Program::ended(Instant deadline) {
  if (owner_ != ::getpid()) return std::nullopt;
  while (!status_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    pollfd item{process_.pidfd.get(), POLLIN, 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::clamp<long long>(left, 0, 1 << 30)));
    if (ready == 0 && left <= 0) return std::nullopt;
    // Nothing: somebody else in this process has reaped it.
    if (ready == 1) status_ = sys::take_exit(process_.pidfd.get(), true).value_or(sys::ExitStatus{});
  }
  return status_;
}

std::string Program::output() const { return contents_of(output_); }
std::string Program::errors() const { return contents_of(errors_); }

std::string Program::last_lines() {
  auto lines = lines_of(errors());
  if (lines.empty()) lines = lines_of(output());
  if (lines.size() > kLastLines) lines.erase(lines.begin(), lines.end() - kLastLines);
  for (const sys::Descriptor* file : {&output_, &errors_}) {
    struct stat info {};
    if (::fstat(file->get(), &info) == 0 && info.st_size > kMuchOutput) (void)!::ftruncate(file->get(), 0);
  }
  return joined(lines, "\n");
}

void Program::signal(int number) {
  if (!status_ && owner_ == ::getpid()) sys::send_signal(process_.pidfd.get(), number);
}

std::string to_string(const sys::ExitStatus& status) {
  return status.signal != 0 ? "signal " + std::to_string(status.signal) : "code " + std::to_string(status.code);
}

std::string output_of(const std::string& where, const Program::Options& options, Seconds patience) {
  Program program(options);
  const auto status = program.ended(now() + ticks(patience));
  if (status && *status == sys::ExitStatus{}) return program.output();
  const std::string said = program.last_lines();
  throw EngineError(
      where + " " + in_quotes(joined(options.argv, " ")) +
      (status ? " ended with " + to_string(*status) : " has not ended within " + human_duration(patience.count())) +
      (said.empty() ? "" : ": " + said));
}

}  // namespace lockstep::engine
