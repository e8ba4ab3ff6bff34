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
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "torch/backend.h"

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13,
              "Lockstep's C++ part needs LibTorch 2.13 or later");

namespace lockstep::torch {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kGloo = "gloo";
constexpr const char* kLoopback = "127.0.0.1";
/// How long a rank whose function has ended keeps its connections for the others.
constexpr std::chrono::seconds kLeaveTogetherWithin{30};
constexpr std::chrono::hours kForEver{24 * 365 * 10};
/// How long an error that looks like another rank's death waits for that death to be seen.
constexpr std::chrono::seconds kCauseComesWithin{2};

/// What this process is part of. Never destroyed: other ranks may need the store when this one is done.
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

/// Filled before main: what TorchTrainer runs, by the user's function.
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

/// A socket that listens at a port of the system's choice, reachable from this machine only.
std::pair<int, std::uint16_t> listen_on_loopback(int backlog) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || ::bind(listener, plain, size) != 0 || ::listen(listener, backlog) != 0 ||
      ::getsockname(listener, plain, &size) != 0)
    throw EngineError(std::string("[torch] rank 0 cannot listen on 127.0.0.1: ") + std::strerror(errno));
  return {listener, ntohs(address.sin_port)};
}

/// Rank 0 binds a socket and hands it to the store; the others hear of its port. Nothing is guessed or tried.
Store make_store(Session& session, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.numWorkers = static_cast<std::size_t>(session.world_size());
  options.waitWorkers = false;
  options.timeout = timeout;
  if (session.world_rank() == 0) {
    const auto [listener, port] = listen_on_loopback(std::max(128, session.world_size()));
    options.isServer = true;
    options.port = port;
    options.masterListenFd = listener;
    auto store = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
    session.broadcast_from_rank_zero({static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)}, timeout);
    return store;
  }
  const Bytes port = session.broadcast_from_rank_zero({}, timeout);
  if (port.size() != 2)
    throw ConfigError(
        "[torch] rank 0 told no port: the ranks call different functions first; call join(), prepare_model() and "
        "session.barrier() in the same order on every rank");
  options.port = static_cast<std::uint16_t>(port[0] << 8 | port[1]);
  return c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
}

/// Rank 0 hosts the store, and every rank may be in the middle of an exchange: they leave together. A rank that others
/// keep waiting for long gives up its connections: one that waits for it in an exchange, for ever, then fails at once.
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
    throw ConfigError("[join] the workers are joined already; call it once, before prepare_model() and every exchange");
  if (options.backend != kAuto && options.backend != kGloo && options.backend != SharedMemoryBackend::kName)
    throw ConfigError("[join] backend is \"" + options.backend + "\"; it may be \"auto\", \"lockstep\" or \"gloo\"");
  if (options.timeout.count() <= 0)
    throw ConfigError("[join] timeout is " + std::to_string(options.timeout.count()) + " ms; it must be more than 0");
  mine.joined = true;
  if (world_size() == 1) return;
  mine.store = make_store(*mine.session, options.timeout);
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>("lockstep", mine.store);
  const auto [backend, type] = make_backend(options.backend, prefixed, rank(), world_size(), options.timeout);
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

Backend make_backend(const std::string& name, const Store& store, int rank, int world,
                     std::chrono::milliseconds timeout) {
  if (name != kGloo) {
    try {
      return {c10::make_intrusive<SharedMemoryBackend>(store, rank, world, timeout),
              c10d::ProcessGroup::BackendType::CUSTOM};
    } catch (const collective::CannotShareMemory&) {
      if (name != kAuto) throw;  // else all ranks are here, and turn to the other one
    }
  }
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kLoopback));
  return {c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options),
          c10d::ProcessGroup::BackendType::GLOO};
}

namespace detail {

void run(TrainFunction function, Session& session) {
  membership().session = &session;
  // Writing to a rank that died is an error of the exchange, not the end of this process.
  std::signal(SIGPIPE, SIG_IGN);
  // For threads that the function starts as well: OpenMP has only been told for this one.
  if (const char* threads = std::getenv("OMP_NUM_THREADS"); threads != nullptr && std::atoi(threads) > 0)
    at::set_num_threads(std::atoi(threads));
  try {
    try {
      function(session);
    } catch (const StopTraining&) {  // its last report
    }
    leave_together(session);
  } catch (const std::exception& error) {
    // This process is ended meanwhile, unless there is no other cause.
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
