#include "store/store_program.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "sys/environment.h"
#include "sys/own_program.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "lockstep-store";
constexpr int kControl = 3;
constexpr int kStartWithin = 60'000;  // milliseconds; then it is killed
constexpr std::size_t kMostWords = 4000;

struct Program {
  std::mutex mutex;  // guards those below
  int owner = 0;
  sys::Process process;
  sys::Descriptor control;
  sys::Descriptor words;                           ///< its standard error
  std::map<std::string, std::string> credentials;  ///< variables that it was started with
  std::vector<sys::Process> retired;               ///< they end when their last connection is closed
  fs::path arrow;
};

Program& program() {
  static auto* instance = new Program;  // not destroyed: other threads may use it to the end
  return *instance;
}

fs::path find_program() {
  if (const char* given = std::getenv("LOCKSTEP_STORE"); given != nullptr && *given != '\0') {
    if (sys::is_program(given)) return given;
    throw StorageError("[storage] LOCKSTEP_STORE is " + in_quotes(given) +
                       ", which is not a program; correct or unset it");
  }
  for (const fs::path& place : sys::places_of_program(kProgram, "storage"))
    if (sys::is_program(place)) return place;
  throw StorageError(
      "[storage] addresses of object stores need the program lockstep-store, which is not installed: it is built when "
      "pyarrow is there; install it (pip install 'pyarrow>=25') and then install Lockstep again");
}

/// The version of pyarrow in the loader's message about "libarrow.so.2500", and what to install.
std::string advice_for(const std::string& words) {
  const std::string library = "libarrow.so.";
  const auto at = words.find(library);
  if (at == std::string::npos) return "";
  const std::string digits = words.substr(at + library.size(), 4);
  const std::string version = digits.size() == 4 && digits.find_first_not_of("0123456789") == std::string::npos
                                  ? "==" + std::to_string(std::atoi(digits.c_str()) / 100) + ".*"
                                  : "";
  return "; it uses the libraries of pyarrow: pip install 'pyarrow" + version + "'";
}

std::string words_of(const sys::Descriptor& file) {
  std::string words(kMostWords, '\0');
  const ssize_t count = ::pread(file.get(), words.data(), words.size(), 0);
  words.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

/// What a program that has started does not see any more when it changes.
std::map<std::string, std::string> credentials_now() {
  auto variables = sys::environment();
  std::erase_if(variables, [](const auto& each) {
    const auto& name = each.first;
    return !(name.starts_with("AWS_") || name.starts_with("GOOGLE_") || name.starts_with("AZURE_") ||
             name.starts_with("HADOOP_") || name == "CLASSPATH" || name == "HOME");
  });
  return variables;
}

bool is_readable(int fd, int milliseconds) {
  pollfd item{fd, POLLIN, 0};
  int ready = 0;
  do ready = ::poll(&item, 1, milliseconds);
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void stop(Program& running) {
  if (running.process.pid != 0 && running.owner == ::getpid()) {
    sys::send_signal(running.process.pidfd.get(), SIGKILL);
    sys::take_exit(running.process.pidfd.get(), true);
  }
  running.control.reset();
  running.process = {};
}

void start(Program& program) {
  sys::Descriptor theirs;
  std::tie(program.control, theirs) = sys::packet_pair();
  program.words = sys::Descriptor(::memfd_create("lockstep-store", MFD_CLOEXEC));
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = {find_program().string(), "--fd", std::to_string(kControl), "--parent", std::to_string(::getpid())};
  options.fds = {{theirs.get(), kControl}, {null.get(), 0}, {null.get(), 1}, {program.words.get(), 2}};
  options.own_session = true;  // Ctrl-C reaches only the caller, which may still need it
  options.env = sys::environment();
  if (!program.arrow.empty()) {
    std::string& libraries = (*options.env)["LD_LIBRARY_PATH"];
    libraries += (libraries.empty() ? "" : ":") + program.arrow.native();
  }
  program.owner = ::getpid();
  program.credentials = credentials_now();
  program.process = sys::spawn(options);
  theirs.reset();
  const bool answers = is_readable(program.control.get(), kStartWithin);
  if (answers && !sys::receive_with_fds(program.control.get()).first.empty()) return;
  stop(program);
  const std::string words = words_of(program.words);
  throw StorageError("[storage] lockstep-store could not start" + (words.empty() ? "" : ": " + words) +
                     (answers ? advice_for(words) : "; it did not answer in time"));
}

bool is_alive(const Program& program) {
  return program.process.pid != 0 && program.owner == ::getpid() && !is_readable(program.process.pidfd.get(), 0);
}

/// Others may still use it.
void retire(Program& running) {
  running.control.reset();
  running.retired.push_back(std::exchange(running.process, {}));
}

}  // namespace

sys::Descriptor connect_to_store() {
  Program& shared = program();
  const std::lock_guard lock(shared.mutex);
  std::erase_if(shared.retired, [&](const sys::Process& each) {
    return shared.owner != ::getpid() || sys::take_exit(each.pidfd.get(), false).has_value();
  });
  if (is_alive(shared) && shared.credentials != credentials_now()) retire(shared);
  for (bool again = false;; again = true) {
    if (!is_alive(shared)) {
      stop(shared);
      try {
        start(shared);
      } catch (const EngineError& error) {
        throw StorageError("[storage] lockstep-store could not start: " + std::string(error.what()));
      }
    }
    auto [ours, theirs] = sys::socket_pair();
    try {
      const std::uint8_t word = 'c';
      const int fd = theirs.get();
      sys::send_with_fds(shared.control.get(), {&word, 1}, {&fd, 1});
      return std::move(ours);
    } catch (const EngineError& error) {
      log_debug(error.what());
      if (again) throw StorageError("[storage] lockstep-store ended at once: " + words_of(shared.words));
      stop(shared);
    }
  }
}

std::string last_words_of_store() {
  Program& shared = program();
  const std::lock_guard lock(shared.mutex);
  return shared.words ? words_of(shared.words) : "";
}

void set_arrow_directory(const fs::path& directory) {
  Program& shared = program();
  const std::lock_guard lock(shared.mutex);
  shared.arrow = directory;
}

bool has_store_program() {
  try {
    find_program();
    return true;
  } catch (const StorageError&) {
    return false;
  }
}

}  // namespace lockstep::store
