#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <span>
#include <string>

#include "wire/messages.h"

namespace lockstep::wire {

/// A message that cannot be decoded: it is cut short, nested too deeply, has an unknown name or a field of another
/// type.
class WireError : public Error {
  using Error::Error;
};

/// CBOR of {"type": M::kName, fields...}, for a message between driver and worker, or between agents (link.h). Strings
/// are sent unchanged: paths and environments need not be UTF-8. Throws WireError when a Value in it is nested deeper
/// than kMaxDepth (cbor.h).
template <class M>
Bytes encode(const M& message);
/// The member of `Variant` (DriverToWorker, WorkerToDriver, NodeToHead, HeadToNode) that the bytes hold. Unknown fields
/// are ignored, missing ones keep their defaults. Memory use is bounded by the input's size; throws WireError and
/// nothing else.
template <class Variant>
Variant decode(std::span<const std::uint8_t> bytes);

/// Whether the bytes are what encode() makes of an M, as far as their beginning shows; cheap.
template <class M>
bool holds(std::span<const std::uint8_t> bytes);
/// Decodes a message whose type is known from holds().
template <class M>
M decode_one(std::span<const std::uint8_t> bytes);

/// The same for a message between driver and agents: {"type", "run", "node", fields...}.
template <class M>
Bytes encode(const Envelope& envelope, const M& message);
/// `Variant` is DriverToAgent or AgentToDriver.
template <class Variant>
Addressed<Variant> decode_addressed(std::span<const std::uint8_t> bytes);

/// The envelope alone, to relay a message undecoded. The rest is not checked.
Envelope envelope_of(std::span<const std::uint8_t> bytes);

/// Appends the message's frame (channel.h) to `out`; the same as append_frame(out, encode(envelope, message)) without
/// the copy.
template <class M>
void append_message(Bytes& out, const Envelope& envelope, const M& message);
/// append_message(out, envelope, FromWorker{attempt, rank, message}) for a message that is not copied before.
void append_from_worker(Bytes& out, const Envelope& envelope, int attempt, int rank,
                        std::span<const std::uint8_t> message);

/// Only a plain value (metrics).
Bytes encode_value(const Value& value);
Value decode_value(std::span<const std::uint8_t> bytes);

/// A struct of messages.h as a plain value and back: the parts of messages, and Begin. The value of a Begin also has
/// its "type", so that encode_value of it gives a complete message (for WorkerSpec).
template <class T>
Value to_value(const T& message);
template <class T>
T from_value(const Value& value);

}  // namespace lockstep::wire
