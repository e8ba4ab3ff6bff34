#pragma once

#include <functional>

#include "agent/loop.h"
#include "sys/descriptor.h"

namespace lockstep::agent {

/// The agent's end of the connection to the process that started it. It is open as long as the agent runs, and carries
/// no messages of runs. Each packet is a word with one descriptor: "run" with a stream socket, the connection of a new
/// run; "listen" with a packet socket, the connection of an engine that spans nodes (engine/head_link.h). Other packets
/// are ignored.
class ControlLink {
 public:
  struct Handlers {
    std::function<void(sys::Descriptor)> run;
    std::function<void(sys::Descriptor)> listen;
    std::function<void()> closed;
  };

  ControlLink(Loop& loop, sys::Descriptor socket, Handlers handlers);

 private:
  void read();

  sys::Descriptor socket_;
  Handlers handlers_;
  Watch watch_;
};

}  // namespace lockstep::agent
