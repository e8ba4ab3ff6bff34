#include "torch/gloo_links.h"

#include <ATen/ops/from_blob.h>
#include <lockstep/error.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "collective/group.h"

namespace lockstep::torch {
namespace {

using collective::LinkError;
using collective::Links;

struct GlooState {
  std::mutex mutex;  ///< guards the rest
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  bool aborted = false;
  std::set<c10d::Work*> under_way;
};

bool contains(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

LinkError translated(const std::exception& error, bool aborted, int peer) {
  const std::string what = error.what();
  // Gloo closes all connections after a timeout; those who wait elsewhere hear of it, and not why.
  if (aborted || contains(what, "Application timeout")) return {LinkError::Kind::aborted, peer, what};
  return {contains(what, "Timed out waiting") ? LinkError::Kind::silent : LinkError::Kind::lost, peer, what};
}

class GlooTransfer final : public Links::Transfer {
 public:
  GlooTransfer(std::shared_ptr<GlooState> state, c10::intrusive_ptr<c10d::Work> work, int peer)
      : state_(std::move(state)), work_(std::move(work)), peer_(peer) {
    state_->under_way.insert(work_.get());  // the caller holds the mutex
  }
  ~GlooTransfer() override {
    const std::lock_guard lock(state_->mutex);
    state_->under_way.erase(work_.get());
  }

  int wait(std::chrono::milliseconds timeout) override {
    try {
      // 0 would be Gloo's own timeout.
      if (work_->wait(std::max(timeout, std::chrono::milliseconds(1))))
        return peer_ == collective::kAnySource ? work_->sourceRank() : peer_;
    } catch (const std::exception& error) {
      throw translated(error, is_aborted(), peer_);
    }
    throw LinkError(LinkError::Kind::aborted, peer_, "[torch] the transfer was aborted");
  }

 private:
  bool is_aborted() {
    const std::lock_guard lock(state_->mutex);
    return state_->aborted;
  }

  std::shared_ptr<GlooState> state_;
  c10::intrusive_ptr<c10d::Work> work_;
  int peer_;
};

class GlooLinks final : public Links {
 public:
  explicit GlooLinks(c10::intrusive_ptr<c10d::ProcessGroupGloo> group) { state_->group = std::move(group); }
  ~GlooLinks() override { abort(); }

  Pending send(const void* data, std::size_t bytes, int peer, int channel) override {
    return post(const_cast<void*>(data), bytes, peer,
                [&](auto& group, auto& tensors) { return group.send(tensors, peer, channel); });
  }

  Pending receive(void* data, std::size_t bytes, int peer, int channel) override {
    return post(data, bytes, peer, [&](auto& group, auto& tensors) {
      return peer == collective::kAnySource ? group.recvAnysource(tensors, channel)
                                            : group.recv(tensors, peer, channel);
    });
  }

  void abort() override {
    c10::intrusive_ptr<c10d::ProcessGroupGloo> ending;
    const std::lock_guard lock(state_->mutex);
    state_->aborted = true;
    for (c10d::Work* work : state_->under_way) work->abort();
    // The connections end with the last work, which holds them too.
    ending.swap(state_->group);
  }

 private:
  template <class Start>
  Pending post(void* data, std::size_t bytes, int peer, const Start& start) {
    const std::lock_guard lock(state_->mutex);
    if (state_->aborted) throw LinkError(LinkError::Kind::aborted, peer, "[torch] the links were aborted");
    std::vector<at::Tensor> tensors{at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte)};
    try {
      return std::make_unique<GlooTransfer>(state_, start(*state_->group, tensors), peer);
    } catch (const std::exception& error) {
      throw translated(error, false, peer);
    }
  }

  std::shared_ptr<GlooState> state_ = std::make_shared<GlooState>();
};

std::shared_ptr<::gloo::transport::Device> device_at(const std::string& address) {
  if (!address.empty()) return c10d::ProcessGroupGloo::createDeviceForHostname(address);
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces == nullptr || *interfaces == '\0') return c10d::ProcessGroupGloo::createDefaultDevice();
  const std::string names = interfaces;
  return c10d::ProcessGroupGloo::createDeviceForInterface(names.substr(0, names.find(',')));
}

}  // namespace

std::unique_ptr<Links> connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                       const std::string& address, std::chrono::milliseconds timeout) {
  try {
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(device_at(address));
    return std::make_unique<GlooLinks>(c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options));
  } catch (const std::exception& error) {
    throw EngineError("[torch] rank " + std::to_string(rank) + " cannot connect to the ranks of other nodes" +
                      (address.empty() ? "" : " from " + address) + ": " + error.what());
  }
}

}  // namespace lockstep::torch
