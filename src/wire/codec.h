#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <span>
#include <string>

#include "wire/messages.h"

namespace lockstep::wire {

/// A message that cannot be understood: cut short, nested too deeply, of an unknown name or with a field of another
/// type.
class WireError : public Error {
  using Error::Error;
};

/// CBOR of {"type": M::kName, fields...}. Strings travel as they are: paths and environments need not be UTF-8.
/// Throws WireError when a Value in it is nested deeper than kMaxDepth (cbor.h).
template <class M>
Bytes encode(const M& message);

/// Appends the message's frame (channel.h) to `out`; the same as append_frame(out, encode(message)) without the copy.
template <class M>
void append_message(Bytes& out, const M& message);

/// append_message(out, FromWorker{attempt, rank, message}) for a message that lies elsewhere.
void append_from_worker(Bytes& out, int attempt, int rank, std::span<const std::uint8_t> message);

/// The member of `Variant` (DriverToAgent, AgentToDriver, DriverToWorker, WorkerToDriver) that the bytes hold. Unknown
/// fields are ignored, missing ones keep their defaults. Memory use is bounded by the input's size; throws WireError
/// and nothing else.
template <class Variant>
Variant decode(std::span<const std::uint8_t> bytes);

/// A plain value alone (metrics).
Bytes encode_value(const Value& value);
Value decode_value(std::span<const std::uint8_t> bytes);

/// Any struct of messages.h as a plain value and back. One with a kName has its "type" too, so that encode_value of it
/// is a whole message (the Begin inside a WorkerSpec).
template <class T>
Value to_value(const T& message);
template <class T>
T from_value(const Value& value);

}  // namespace lockstep::wire
