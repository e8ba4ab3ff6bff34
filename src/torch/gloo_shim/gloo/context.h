#pragma once

// The wheel of torch carries Gloo's code but not its headers. ProcessGroupGloo.hpp names the types below only behind
// pointers: declaring what it needs of them is enough to construct one. Never construct a GlooStore, or link a second
// Gloo: the layouts here are not the real ones.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace transport
}  // namespace gloo
