#include "torch/group.h"

#include <lockstep/error.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/trainer.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "torch/shared_memory_backend.h"

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13,
              "Lockstep's C++ part needs LibTorch 2.13 or later");

namespace lockstep::torch {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kGloo = "gloo";
/// After this time, a rank whose function has ended closes its connections to the others.
constexpr std::chrono::seconds kLeaveTogetherWithin{30};
constexpr std::chrono::hours kForEver{24 * 365 * 10};
/// An error that looks like another rank's death is reported after this delay, so that the death itself is seen first.
constexpr std::chrono::seconds kCauseComesWithin{2};

/// The process group of this process. Never destroyed: other ranks may need the store after this one is done.
struct Membership {
  Session* session = nullptr;
  bool joined = false;
  Store store;
  Group group;
};

Membership& membership() {
  static auto* instance = new Membership;
  return *instance;
}

/// Filled before main: the function that TorchTrainer runs for each of the user's functions.
std::map<TrainFunction, TrainFunction>& joined_functions() {
  static std::map<TrainFunction, TrainFunction> functions;
  return functions;
}

TrainFunction joined_function(TrainFunction function) {
  const auto found = joined_functions().find(function);
  if (found == joined_functions().end())
    throw ConfigError(
        "[TorchTrainer] the training function is not registered; include <lockstep/torch.h> and write "
        "LOCKSTEP_TRAIN_FUNCTION(name) behind its definition");
  return found->second;
}

/// A socket that listens on an address of this node, on a port that the system chooses.
std::pair<int, std::uint16_t> listen_on(const std::string& node_address, int backlog) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, node_address.c_str(), &address.sin_addr) != 1)
    throw EngineError("[torch] the address of rank 0's node is \"" + node_address + "\", which is not IPv4");
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || ::bind(listener, plain, size) != 0 || ::listen(listener, backlog) != 0 ||
      ::getsockname(listener, plain, &size) != 0)
    throw EngineError("[torch] rank 0 cannot listen on " + node_address + ": " + std::strerror(errno));
  return {listener, ntohs(address.sin_port)};
}

/// Rank 0 binds a socket, passes it to the store, and sends its port to the others. No port is guessed.
Store make_store(Session& session, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.numWorkers = static_cast<std::size_t>(session.world_size());
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string& address = session.node_address(0);
  if (session.world_rank() == 0) {
    const auto [listener, port] = listen_on(address, std::max(128, session.world_size()));
    options.isServer = true;
    options.port = port;
    options.masterListenFd = listener;
    auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
    session.broadcast_from_rank_zero({static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)}, timeout);
    return store;
  }
  const Bytes port = session.broadcast_from_rank_zero({}, timeout);
  if (port.size() != 2)
    throw ConfigError(
        "[torch] rank 0 sent no port: the ranks call different functions first; call join(), prepare_model() and "
        "session.barrier() in the same order on every rank");
  options.port = static_cast<std::uint16_t>(port[0] << 8 | port[1]);
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

collective::Place place_of(Session& session) {
  const char* node = std::getenv("LOCKSTEP_COLLECTIVE_NODE");
  if (node != nullptr && *node != '\0') return {node, session.node_address(rank()), false};
  return {"node " + std::to_string(session.node_rank()), session.node_address(rank()),
          session.local_world_size() == session.world_size()};
}

/// Rank 0 hosts the store, and every rank may be in the middle of a collective, so all ranks leave together. A rank
/// that has waited too long for the others closes its connections, so that a rank that waits for it in a collective
/// fails at once instead of waiting forever.
void leave_together(Session& session) {
  if (!membership().group) return;
  try {
    session.barrier(kLeaveTogetherWithin);
  } catch (const TimeoutError&) {
    membership().group.reset();
    session.barrier(kForEver);
  }
}

bool is_consequence(const std::exception& error) {
  static constexpr std::array<std::string_view, 8> kLostPeer{"closed by peer",      "reset by peer",
                                                             "Broken pipe",         "Connection refused",
                                                             ") died; see its log", ") left the group, and is needed",
                                                             " aborted the group",  " gave up waiting for "};
  if (!membership().group) return false;
  const std::string_view what = error.what();
  for (const auto words : kLostPeer)
    if (what.find(words) != std::string_view::npos) return true;
  return false;
}

}  // namespace

Session* current_session() { return membership().session; }

int rank() { return current_session() != nullptr ? current_session()->world_rank() : 0; }

int world_size() { return current_session() != nullptr ? current_session()->world_size() : 1; }

::torch::Device device() { return ::torch::cuda::is_available() ? ::torch::Device(::torch::kCUDA, 0) : ::torch::kCPU; }

void join(const GroupOptions& options) {
  Membership& mine = membership();
  if (mine.joined)
    throw ConfigError(
        "[join] the workers are already connected; call it once, before prepare_model() and every collective");
  if (options.backend != kAuto && options.backend != kGloo && options.backend != SharedMemoryBackend::kName)
    throw ConfigError("[join] backend is \"" + options.backend + "\"; it may be \"auto\", \"lockstep\" or \"gloo\"");
  if (options.timeout.count() <= 0)
    throw ConfigError("[join] timeout is " + std::to_string(options.timeout.count()) + " ms; it must be more than 0");
  mine.joined = true;
  if (world_size() == 1) return;
  mine.store = make_store(*mine.session, options.timeout);
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("lockstep", mine.store);
  const auto [backend, type] = make_backend(options.backend, prefixed, place_of(*mine.session), options.timeout);
  mine.group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank(), world_size());
  mine.group->setBackend(c10::DeviceType::CPU, type, backend);
  mine.group->setDefaultBackend(type);
  if (device().is_cuda()) {
    const auto on_gpus = c10::make_intrusive<c10d::PrefixStore>("lockstep-gpu", mine.store);
    const auto [gpu_backend, gpu_type] = make_gpu_backend(on_gpus, rank(), world_size(), options.timeout);
    mine.group->setBackend(c10::DeviceType::CUDA, gpu_type, gpu_backend);
  }
}

const Group& group() {
  if (!membership().joined) join();
  return membership().group;
}

TypedBackend make_backend(const std::string& name, const Store& store, const collective::Place& place,
                          std::chrono::milliseconds timeout) {
  if (name != kGloo) {
    try {
      return {c10::make_intrusive<SharedMemoryBackend>(store, rank(), world_size(), timeout, place),
              c10d::ProcessGroup::BackendType::CUSTOM};
    } catch (const collective::CannotShareMemory& error) {
      if (name != kAuto) throw;  // otherwise all ranks get here, and use the other backend
      if (rank() == 0) std::cerr << "lockstep: warning: " << error.what() << "; these ranks use Gloo\n";
    }
  }
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(place.address));
  return {c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank(), world_size(), options),
          c10d::ProcessGroup::BackendType::GLOO};
}

namespace detail {

void run(TrainFunction function, Session& session) {
  membership().session = &session;
  // Writing to a dead rank must be an error of the collective, not kill this process.
  std::signal(SIGPIPE, SIG_IGN);
  // Also for threads that the function starts: OpenMP's number is set only for this thread.
  if (const char* threads = std::getenv("OMP_NUM_THREADS"); threads != nullptr && std::atoi(threads) > 0)
    at::set_num_threads(std::atoi(threads));
  try {
    try {
      function(session);
    } catch (const StopTraining&) {  // its last report
    }
    leave_together(session);
  } catch (const std::exception& error) {
    // Meanwhile this process is killed, unless there is no other cause.
    if (!session.stopping() && is_consequence(error)) std::this_thread::sleep_for(kCauseComesWithin);
    throw;
  }
}

bool register_function(const char* name, TrainFunction plain, TrainFunction joined) {
  joined_functions()[plain] = joined;
  // DataParallelTrainer finds the plain one.
  return lockstep::detail::register_function(name, joined) &&
         lockstep::detail::register_function((name + std::string(" (not joined)")).c_str(), plain);
}

}  // namespace detail
}  // namespace lockstep::torch

namespace lockstep {

TorchTrainer::TorchTrainer(TrainFunction function, TrainerOptions options)
    : DataParallelTrainer(torch::joined_function(function), std::move(options)) {
  trainer_ = "TorchTrainer";
}

TorchTrainer TorchTrainer::restore(const std::filesystem::path& path, TrainFunction function) {
  TorchTrainer trainer(DataParallelTrainer::restore(path, torch::joined_function(function)));
  trainer.trainer_ = "TorchTrainer";
  return trainer;
}

}  // namespace lockstep
