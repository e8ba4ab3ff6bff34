#include "wire/codec.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/text.h"
#include "wire/cbor.h"
#include "wire/channel.h"
#include "wire/link.h"

namespace lockstep::wire {
namespace {

template <class T>
concept Message = requires {
  T::kName;
};
template <class T>
concept Struct = requires(T value) {
  value.fields();
};

// ---------------------------------------------------------------- fields

template <Struct T>
void write(CborWriter& out, const T& value);

void write(CborWriter& out, bool value) { out.boolean(value); }
void write(CborWriter& out, int value) { out.integer(value); }
void write(CborWriter& out, std::int64_t value) { out.integer(value); }
void write(CborWriter& out, double value) { out.number(value); }
void write(CborWriter& out, const std::string& value) { out.text(value); }
void write(CborWriter& out, const Bytes& value) { out.bytes(value); }
void write(CborWriter& out, const Value& value) { out.value(value); }
void write(CborWriter& out, const std::optional<double>& value) { value ? out.number(*value) : out.null(); }

template <class A, class B>
void write(CborWriter& out, const std::pair<A, B>& value) {
  out.array(2);
  write(out, value.first);
  write(out, value.second);
}

template <class T>
void write(CborWriter& out, const std::map<std::string, T>& value) {
  out.map(value.size());
  for (const auto& [key, item] : value) {
    out.text(key);
    write(out, item);
  }
}

template <class T>
void write(CborWriter& out, const std::vector<T>& value) {
  out.array(value.size());
  for (const T& item : value) write(out, item);
}

/// fields() gives pointers to write through and is therefore not const; writers only read.
template <Struct T>
auto fields_of(const T& value) {
  return const_cast<T&>(value).fields();
}

template <Struct T>
constexpr std::size_t field_count() {
  return std::tuple_size_v<decltype(std::declval<T&>().fields())>;
}

template <Struct T>
void write_fields(CborWriter& out, const T& value) {
  std::apply([&](const auto&... field) { ((out.text(field.first), write(out, std::as_const(*field.second))), ...); },
             fields_of(value));
}

template <Message M>
void write_type(CborWriter& out) {
  out.text("type");
  out.text(M::kName);
}

template <Struct T>
void write(CborWriter& out, const T& value) {
  out.map(field_count<T>() + (Message<T> ? 1 : 0));
  if constexpr (Message<T>) write_type<T>(out);
  write_fields(out, value);
}

template <Message M>
void write_addressed(CborWriter& out, const Envelope& envelope, const M& message) {
  out.map(1 + field_count<Envelope>() + field_count<M>());
  write_type<M>(out);
  write_fields(out, envelope);
  write_fields(out, message);
}

template <Struct T>
void read(CborReader& in, T& value);

void read(CborReader& in, bool& value) { value = in.boolean(); }
void read(CborReader& in, std::int64_t& value) { value = in.integer(); }
void read(CborReader& in, double& value) { value = in.number(); }
void read(CborReader& in, std::string& value) { value = in.text(); }
void read(CborReader& in, Value& value) { value = in.value(); }

void read(CborReader& in, int& value) {
  const std::int64_t wide = in.integer();
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    throw WireError("[wire] " + std::to_string(wide) + " does not fit into the 32 bits of a field");
  value = static_cast<int>(wide);
}

void read(CborReader& in, Bytes& value) {
  const auto bytes = in.bytes();
  value.assign(bytes.begin(), bytes.end());
}

void read(CborReader& in, std::optional<double>& value) {
  if (in.null())
    value.reset();
  else
    value = in.number();
}

template <class A, class B>
void read(CborReader& in, std::pair<A, B>& value) {
  if (in.array() != 2) throw WireError("[wire] a pair does not have two items");
  read(in, value.first);
  read(in, value.second);
}

template <class T>
void read(CborReader& in, std::map<std::string, T>& value) {
  value.clear();
  for (std::size_t left = in.map(); left > 0; --left) {
    const std::string key(in.text());
    read(in, value[key]);
  }
}

template <class T>
void read(CborReader& in, std::vector<T>& value) {
  value.clear();
  for (std::size_t left = in.array(); left > 0; --left) read(in, value.emplace_back());
}

template <Struct T>
void read(CborReader& in, T& value) {
  auto fields = value.fields();
  for (std::size_t left = in.map(); left > 0; --left) {
    const std::string_view key = in.text();
    const auto read_if = [&](const auto& field) {
      if (key != field.first) return false;
      read(in, *field.second);
      return true;
    };
    const bool known = std::apply([&](const auto&... field) { return (read_if(field) || ...); }, fields);
    if (!known) in.skip();
  }
}

// ---------------------------------------------------------------- messages

void check_end(const CborReader& in) {
  if (!in.at_end())
    throw WireError("[wire] a message has more bytes after its end at byte " + std::to_string(in.position()));
}

/// The value of "type". encode() writes it as the first key, but in values that were built elsewhere it can be
/// anywhere.
std::string_view type_of(std::span<const std::uint8_t> bytes) {
  CborReader in(bytes);
  for (std::size_t left = in.map(); left > 0; --left) {
    if (in.text() == "type") return in.text();
    in.skip();
  }
  throw WireError("[wire] a message without a type");
}

template <class T>
T decode_struct(std::span<const std::uint8_t> bytes) {
  CborReader in(bytes);
  T message;
  read(in, message);
  check_end(in);
  return message;
}

template <class Variant, std::size_t I = 0>
Variant decode_as(std::string_view type, std::span<const std::uint8_t> bytes) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw WireError("[wire] unknown message " + in_quotes(type.substr(0, 100)));
  } else {
    using M = std::variant_alternative_t<I, Variant>;
    if (type == M::kName) return Variant(std::in_place_index<I>, decode_struct<M>(bytes));
    return decode_as<Variant, I + 1>(type, bytes);
  }
}

/// Appends a frame whose message `write_message` appends.
template <class F>
void append_framed(Bytes& out, F&& write_message) {
  const std::size_t begin = out.size();
  out.resize(begin + kFrameHeader);
  write_message();
  put_frame_header(std::span<std::uint8_t, kFrameHeader>(out.data() + begin, kFrameHeader),
                   out.size() - begin - kFrameHeader);
}

}  // namespace

template <class M>
Bytes encode(const M& message) {
  Bytes out;
  CborWriter writer(out);
  write(writer, message);
  return out;
}

template <class M>
Bytes encode(const Envelope& envelope, const M& message) {
  Bytes out;
  CborWriter writer(out);
  write_addressed(writer, envelope, message);
  return out;
}

template <class M>
void append_message(Bytes& out, const Envelope& envelope, const M& message) {
  append_framed(out, [&] {
    CborWriter writer(out);
    write_addressed(writer, envelope, message);
  });
}

void append_from_worker(Bytes& out, const Envelope& envelope, int attempt, int rank,
                        std::span<const std::uint8_t> message) {
  append_framed(out, [&] {
    CborWriter writer(out);
    writer.map(4 + field_count<Envelope>());
    write_type<FromWorker>(writer);
    write_fields(writer, envelope);
    writer.text("attempt");
    writer.integer(attempt);
    writer.text("rank");
    writer.integer(rank);
    writer.text("message");
    writer.bytes(message);
  });
}

template <class Variant>
Variant decode(std::span<const std::uint8_t> bytes) {
  return decode_as<Variant>(type_of(bytes), bytes);
}

template <class M>
bool holds(std::span<const std::uint8_t> bytes) {
  static const Bytes begin = [] {
    Bytes made;
    CborWriter out(made);
    out.map(field_count<M>() + 1);
    write_type<M>(out);
    return made;
  }();
  return bytes.size() >= begin.size() && std::equal(begin.begin(), begin.end(), bytes.begin());
}

template <class M>
M decode_one(std::span<const std::uint8_t> bytes) {
  return decode_struct<M>(bytes);
}

template <class Variant>
Addressed<Variant> decode_addressed(std::span<const std::uint8_t> bytes) {
  return {decode_struct<Envelope>(bytes), decode_as<Variant>(type_of(bytes), bytes)};
}

Envelope envelope_of(std::span<const std::uint8_t> bytes) {
  Envelope envelope;
  CborReader in(bytes);
  int left = 2;
  for (std::size_t pairs = in.map(); pairs > 0 && left > 0; --pairs) {
    const std::string_view key = in.text();
    int* const field = key == "run" ? &envelope.run : key == "node" ? &envelope.node : nullptr;
    if (field == nullptr) {
      in.skip();
      continue;
    }
    read(in, *field);
    --left;
  }
  return envelope;
}

Bytes encode_value(const Value& value) {
  Bytes out;
  CborWriter(out).value(value);
  return out;
}

Value decode_value(std::span<const std::uint8_t> bytes) {
  CborReader in(bytes);
  Value value = in.value();
  check_end(in);
  return value;
}

template <class T>
Value to_value(const T& message) {
  Bytes bytes;
  CborWriter writer(bytes);
  write(writer, message);
  return decode_value(bytes);
}

template <class T>
T from_value(const Value& value) {
  return decode_struct<T>(encode_value(value));
}

#define LOCKSTEP_STRUCT(T)              \
  template Value to_value<T>(const T&); \
  template T from_value<T>(const Value&);
#define LOCKSTEP_ADDRESSED(M)                          \
  template Bytes encode<M>(const Envelope&, const M&); \
  template void append_message<M>(Bytes&, const Envelope&, const M&);
#define LOCKSTEP_MESSAGE(M) template Bytes encode<M>(const M&);
#define LOCKSTEP_HANDOVER(M)                             \
  LOCKSTEP_MESSAGE(M)                                    \
  template bool holds<M>(std::span<const std::uint8_t>); \
  template M decode_one<M>(std::span<const std::uint8_t>);

LOCKSTEP_STRUCT(WorkerSpec)
LOCKSTEP_STRUCT(Report)
LOCKSTEP_STRUCT(FileEntry)
LOCKSTEP_STRUCT(Begin)
LOCKSTEP_ADDRESSED(Configure)
LOCKSTEP_ADDRESSED(StartAttempt)
LOCKSTEP_ADDRESSED(StopAttempt)
LOCKSTEP_ADDRESSED(StartWorker)
LOCKSTEP_ADDRESSED(StopWorker)
LOCKSTEP_ADDRESSED(KeepWorkers)
LOCKSTEP_ADDRESSED(CountKept)
LOCKSTEP_ADDRESSED(DumpStacks)
LOCKSTEP_ADDRESSED(ReleaseCheckpoint)
LOCKSTEP_ADDRESSED(ToWorker)
LOCKSTEP_ADDRESSED(AgentReady)
LOCKSTEP_ADDRESSED(AgentFailed)
LOCKSTEP_ADDRESSED(NodeLost)
LOCKSTEP_ADDRESSED(Preempted)
LOCKSTEP_ADDRESSED(WorkerStarted)
LOCKSTEP_ADDRESSED(WorkerAlive)
LOCKSTEP_ADDRESSED(KeptWorkers)
LOCKSTEP_ADDRESSED(LogText)
LOCKSTEP_ADDRESSED(FromWorker)
LOCKSTEP_ADDRESSED(WorkerStacks)
LOCKSTEP_ADDRESSED(WorkerExited)
LOCKSTEP_ADDRESSED(AttemptEnded)
LOCKSTEP_MESSAGE(Begin)
LOCKSTEP_MESSAGE(Payload)
LOCKSTEP_MESSAGE(MeetingDone)
LOCKSTEP_MESSAGE(Interrupt)
LOCKSTEP_MESSAGE(Settle)
LOCKSTEP_MESSAGE(Preempt)
LOCKSTEP_MESSAGE(HoldReports)
LOCKSTEP_MESSAGE(EndAfter)
LOCKSTEP_MESSAGE(PauseReports)
LOCKSTEP_MESSAGE(LetPass)
LOCKSTEP_MESSAGE(GoOn)
LOCKSTEP_MESSAGE(Call)
LOCKSTEP_MESSAGE(CallsOver)
LOCKSTEP_MESSAGE(Lease)
LOCKSTEP_MESSAGE(CheckpointGiven)
LOCKSTEP_MESSAGE(WorkerReady)
LOCKSTEP_MESSAGE(Reports)
LOCKSTEP_MESSAGE(CheckpointWritten)
LOCKSTEP_MESSAGE(CheckpointWanted)
LOCKSTEP_MESSAGE(Heartbeat)
LOCKSTEP_MESSAGE(StopWanted)
LOCKSTEP_MESSAGE(ReportsHeld)
LOCKSTEP_MESSAGE(ReportsPaused)
LOCKSTEP_MESSAGE(Settled)
LOCKSTEP_MESSAGE(MeetingEntered)
LOCKSTEP_MESSAGE(CallsAwaited)
LOCKSTEP_MESSAGE(CallDone)
LOCKSTEP_MESSAGE(WorkerFinished)
LOCKSTEP_MESSAGE(WorkerFailed)
LOCKSTEP_HANDOVER(CheckpointHeld)
LOCKSTEP_HANDOVER(CheckpointStored)
LOCKSTEP_MESSAGE(Hello)
LOCKSTEP_MESSAGE(Welcome)
LOCKSTEP_MESSAGE(Refused)
LOCKSTEP_MESSAGE(Beat)
LOCKSTEP_MESSAGE(BeatSeen)
LOCKSTEP_MESSAGE(CloseStream)
LOCKSTEP_MESSAGE(HoldStream)
LOCKSTEP_MESSAGE(StreamEnded)
template Addressed<DriverToAgent> decode_addressed<DriverToAgent>(std::span<const std::uint8_t>);
template Addressed<AgentToDriver> decode_addressed<AgentToDriver>(std::span<const std::uint8_t>);
template DriverToWorker decode<DriverToWorker>(std::span<const std::uint8_t>);
template WorkerToDriver decode<WorkerToDriver>(std::span<const std::uint8_t>);
template NodeToHead decode<NodeToHead>(std::span<const std::uint8_t>);
template HeadToNode decode<HeadToNode>(std::span<const std::uint8_t>);

}  // namespace lockstep::wire
