#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "collective/links.h"

namespace lockstep::torch {

/// Connects a rank with all others of its group by Gloo's transport, over TCP. All ranks call it at the same time, with
/// a store of their own. `address` is one of this node, where it listens; empty: the interface that GLOO_SOCKET_IFNAME
/// names, or what Gloo chooses. Throws EngineError if the connections cannot be made.
std::unique_ptr<collective::Links> connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                                   const std::string& address, std::chrono::milliseconds timeout);

}  // namespace lockstep::torch
