#include <fcntl.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "agent/agent.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "sys/agent_mark.h"
#include "sys/node.h"
#include "sys/process.h"
#include "sys/secret.h"
#include "sys/sockets.h"

namespace lockstep {
namespace {

constexpr const char* kUsage =
    "Usage: lockstep agent --join HOST:PORT (--secret-file FILE | --secret-stdin) [--name N] [--slots N] [--wait "
    "SECONDS]\n"
    "Runs workers on this machine for a run whose driver is on another. Ends with the run.\n"
    "  --join HOST:PORT    where the driver's agent listens\n"
    "  --secret-file FILE  the run's secret: 64 hexadecimal digits, in a file that only its owner may read\n"
    "  --secret-stdin      the same as the first line of standard input\n"
    "  --name N            the node's name, unique in the run; default: the host name\n"
    "  --slots N           how many workers this node has room for; default: its cores\n"
    "  --wait SECONDS      how long to wait until the driver listens; default: 300\n";

constexpr const char* kInternalUsage =
    "Or, started by Lockstep on the driver's machine: lockstep-agent --fd N [--parent PID]\n"
    "  --fd N        connected packet socket, which brings the connections of runs\n"
    "  --parent PID  also end when this process ends\n"
    "Or by an engine on another node, with the options above and\n"
    "  --until-stdin-ends  also end when standard input does\n";

struct UsageError : ConfigError {
  using ConfigError::ConfigError;
};

struct Arguments {
  int fd = -1, parent = 0;
  std::string join, secret_file, name;
  bool secret_stdin = false, until_stdin_ends = false;
  std::optional<int> slots;
  int wait = 300;
};

int number_of(const std::string& option, const std::string& text, int least) {
  int number = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ptr != end || text.empty() || number < least)
    throw UsageError("[agent] " + option + " is " + in_quotes(text) + "; it must be a number of at least " +
                     std::to_string(least));
  return number;
}

Arguments read(int argc, char** argv) {
  Arguments given;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--secret-stdin") {
      given.secret_stdin = true;
      continue;
    }
    if (option == "--until-stdin-ends") {
      given.until_stdin_ends = true;
      continue;
    }
    std::string value;
    if (const auto equals = option.find('='); option.starts_with("--") && equals != std::string::npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      throw UsageError("[agent] " + option + " needs a value, or is unknown");
    }
    if (option == "--fd")
      given.fd = number_of(option, value, 3);
    else if (option == "--parent")
      given.parent = number_of(option, value, 1);
    else if (option == "--join")
      given.join = value;
    else if (option == "--secret-file")
      given.secret_file = value;
    else if (option == "--name")
      given.name = value;
    else if (option == "--slots")
      given.slots = number_of(option, value, 1);
    else if (option == "--wait")
      given.wait = number_of(option, value, 0);
    else
      throw UsageError("[agent] there is no option " + option);
  }
  if ((given.fd < 0) == given.join.empty()) throw UsageError("[agent] --join HOST:PORT is missing");
  if (!given.join.empty() && given.secret_file.empty() == !given.secret_stdin)
    throw UsageError("[agent] give the run's secret by --secret-file FILE or by --secret-stdin");
  return given;
}

agent::Joined::Options join_options(const Arguments& given) {
  const auto colon = given.join.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw UsageError("[agent] --join is " + in_quotes(given.join) + "; it must be HOST:PORT");
  agent::Joined::Options options;
  options.host = given.join.substr(0, colon);
  options.port = number_of("the port in --join", given.join.substr(colon + 1), 1);
  options.secret = given.secret_stdin ? sys::read_secret_line() : sys::read_secret_file(given.secret_file);
  options.patience = Seconds(given.wait);
  const auto declared = sys::declared_resources();
  wire::Hello& hello = options.hello;
  hello.version = kVersion;
  hello.host = sys::host_name();
  hello.name = given.name.empty() ? hello.host : given.name;
  hello.pid = ::getpid();
  hello.resources = sys::node_resources(declared);
  if (given.slots) hello.resources["CPU"] = *given.slots;
  hello.gpu_ids = sys::gpu_ids(declared);
  hello.interfaces = sys::interface_addresses();
  return options;
}

int run_agent(int argc, char** argv) {
  const bool asks_for_help = argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0);
  if (asks_for_help || argc == 1) {
    std::fputs(kUsage, asks_for_help ? stdout : stderr);
    std::fputs(kInternalUsage, asks_for_help ? stdout : stderr);
    return asks_for_help ? 0 : 2;
  }
  try {
    const Arguments given = read(argc, argv);
    sys::set_process_name("lockstep-agent");
    agent::Agent::Options options;
    options.parent = given.parent;
    if (given.join.empty()) {
      sys::close_all_but(given.fd);
      sys::close_on_exec(given.fd);
      options.control = sys::Descriptor(given.fd);
    } else {
      options.join = join_options(given);
      if (given.until_stdin_ends) options.input = sys::Descriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
      if (std::getenv(sys::kAgentId) == nullptr) ::setenv(sys::kAgentId, random_hex(32).c_str(), 1);
    }
    agent::Agent agent(std::move(options));
    agent.run();
    return 0;
  } catch (const UsageError& error) {
    log_error(error.what());
    std::fputs(kUsage, stderr);
    return 2;
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run_agent(argc, argv); }
