#include "engine/ray/ray_launcher.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::engine::ray {
namespace {

constexpr int kHelperFd = 3;
/// More than the helper itself takes to give up waiting.
constexpr Seconds kAnswerLater{30.0};
/// The helper ends the actors and leaves the cluster within this time.
constexpr Seconds kEndWithin{8.0};

LaunchNodes::Node node_of(const Value& value) {
  return {value.at("name").get<std::string>(), value.at("cpus").get<double>()};
}

}  // namespace

RayLauncher::~RayLauncher() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

LaunchNodes RayLauncher::nodes() {
  auto [ours, theirs] = sys::socket_pair();
  Program::Options program;
  program.argv = options_.helper;
  program.argv.push_back(std::to_string(kHelperFd));
  program.fds = {{theirs.get(), kHelperFd}};
  helper_ = std::make_unique<Program>(program);
  socket_ = std::move(ours);
  theirs.reset();

  Value start{{"address", options_.address},
              {"nodes", nullptr},
              {"workers", nullptr},
              {"resources_per_worker", options_.resources_per_worker},
              {"strategy", options_.strategy},
              {"patience", options_.patience.count()}};
  if (options_.nodes) start["nodes"] = *options_.nodes;
  if (options_.workers) start["workers"] = *options_.workers;
  send(start);
  LaunchNodes result;
  result.head_works = false;
  for (const Instant deadline = now() + ticks(options_.patience + kAnswerLater);;) {
    const auto answer = receive(deadline);
    if (!answer) throw EngineError("[engine.ray] " + why_helper_ended());
    if (const auto waiting = answer->find("waiting"); waiting != answer->end()) {
      log_warning("[engine.ray] " + waiting->get<std::string>());
      continue;
    }
    if (const auto failed = answer->find("failed"); failed != answer->end()) {
      const std::string why = "[engine.ray] " + failed->get<std::string>();
      if (answer->at("is_config").get<bool>()) throw ConfigError(why);
      throw EngineError(why);
    }
    for (const Value& each : answer->at("nodes")) result.others.push_back(node_of(each));
    return result;
  }
}

void RayLauncher::launch(const LaunchNodes::Node& node, const JoinCommand& command) {
  launched_.insert(node.name);
  send({{"launch", node.name}, {"argv", command.argv}, {"secret", command.secret}});
}

std::vector<Launcher::Ended> RayLauncher::ended() {
  take_messages();
  return std::exchange(ended_, {});
}

std::optional<LaunchNodes::Node> RayLauncher::replace(const std::string& lost) {
  if (asked_.insert(lost).second) send({{"replace", lost}});
  take_messages();
  const auto found = replaced_.find(lost);
  if (found == replaced_.end()) return std::nullopt;
  LaunchNodes::Node node = std::move(found->second);
  replaced_.erase(found);
  asked_.erase(lost);
  return node;
}

void RayLauncher::stop() {
  if (!helper_) return;
  socket_.reset();
  if (!helper_->ended(now() + ticks(kEndWithin)))
    log_warning("[engine.ray] the helper did not end in time and is killed");
  helper_.reset();
  launched_.clear();
}

void RayLauncher::send(const Value& message) {
  const std::string line = to_json(message) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t size = ::send(socket_.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw EngineError("[engine.ray] " + why_helper_ended());
    done += static_cast<std::size_t>(size);
  }
}

std::optional<Value> RayLauncher::receive(Instant deadline) {
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return parse_json(line, "a line of Ray's helper");
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    pollfd item{socket_.get(), POLLIN, 0};
    if (!socket_ || (::poll(&item, 1, static_cast<int>(std::clamp<long long>(left, 0, 1 << 30))) == 0 && left <= 0))
      return std::nullopt;
    std::array<char, 4096> buffer;
    const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size > 0) received_.append(buffer.data(), static_cast<std::size_t>(size));
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) socket_.reset();
  }
}

void RayLauncher::take_messages() {
  while (const auto message = receive(Instant{})) take(*message);
  if (socket_ || !helper_) return;
  const std::string why = why_helper_ended();
  for (const std::string& node : std::exchange(launched_, {})) ended_.push_back({node, why});
}

void RayLauncher::take(const Value& message) {
  if (const auto ended = message.find("ended"); ended != message.end()) {
    if (launched_.erase(ended->get<std::string>()) != 0)
      ended_.push_back({ended->get<std::string>(), message.at("why").get<std::string>()});
  } else if (const auto replaced = message.find("replaced"); replaced != message.end()) {
    replaced_[replaced->get<std::string>()] = node_of(message.at("node"));
  } else if (const auto noted = message.find("noted"); noted != message.end()) {
    log_info("[engine.ray] " + noted->get<std::string>());
  }
}

/// Kills it if it has not ended.
std::string RayLauncher::why_helper_ended() {
  if (!helper_) return "there is no cluster any more";
  const auto status = helper_->ended(now() + ticks(Seconds(1.0)));
  const std::string said = helper_->last_lines();
  socket_.reset();
  return "Ray's helper, " + in_quotes(joined(options_.helper, " ")) +
         (status ? ", has ended with " + to_string(*status) : ", does not answer") + (said.empty() ? "" : ": " + said);
}

}  // namespace lockstep::engine::ray
