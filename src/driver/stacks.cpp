#include "driver/stacks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <vector>

namespace lockstep::driver {
namespace {

// General words, not names of frameworks. Calls that wait for a device or a graph are included: collectives run inside
// them, and the visible thread waits for their end.

/// In the name of a library's function.
constexpr std::array kCalls{"all_reduce", "allreduce",      "all_gather", "allgather",     "all_to_all",
                            "alltoall",   "reduce_scatter", "broadcast",  "reducescatter", "barrier",
                            "rendezvous", "synchronize",    "collective", "quick_execute", "block_until_ready"};
/// Complete words in the path of a library's file.
constexpr std::array kModules{"distributed", "distribute", "collective", "collectives", "mpi", "nccl", "gloo", "c10d"};
/// In the name of a shared library or of a native function.
constexpr std::array kNative{"c10d", "nccl", "gloo", "libmpi", "collective", "allreduce", "allgather", "synchronize"};

constexpr std::string_view kInterpreter = "_PyEval_EvalFrame";
constexpr std::string_view kOwnFrame = "/lockstep/_worker.py";
constexpr std::string_view kOwnCaller = "/lockstep/_pickling.py";

struct Frame {
  std::string_view file, line, function;
};

struct Thread {
  bool interrupted = false;
  std::vector<Frame> frames;
  std::string_view own = {};  ///< the directory of Lockstep's package
};

struct Stacks {
  std::vector<Thread> threads;
  std::vector<std::string_view> native;
};

Frame parse_frame(std::string_view text) {
  text.remove_prefix(text.find('"') + 1);
  const auto file_end = text.rfind("\", line ");
  if (file_end == std::string_view::npos) return {text, {}, {}};
  Frame frame{text.substr(0, file_end), text.substr(file_end + 8), {}};
  if (const auto in = frame.line.find(" in "); in != std::string_view::npos) {
    frame.function = frame.line.substr(in + 4);
    frame.line = frame.line.substr(0, in);
  }
  return frame;
}

Stacks parse_stacks(std::string_view text) {
  Stacks stacks;
  bool native = false;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("Native stack"))
      native = true;
    else if (native)
      stacks.native.push_back(line);
    else if (line.starts_with("Thread 0x") || line.starts_with("Current thread 0x"))
      stacks.threads.push_back({line.starts_with("Current"), {}});
    else if (line.starts_with("  File \"") && !stacks.threads.empty())
      stacks.threads.back().frames.push_back(parse_frame(line));
  }
  return stacks;
}

/// The thread of the training function, which is the one that we started. If a very deep stack is cut off before our
/// own frames, take the interrupted thread, which usually is the main one.
Thread functions_thread(const std::vector<Thread>& threads) {
  const auto is_ours = [](const Frame& frame) { return frame.file.ends_with(kOwnFrame); };
  for (const Thread& thread : threads)
    if (const auto own = std::ranges::find_if(thread.frames, is_ours); own != thread.frames.end()) {
      auto end = own;
      while (end != thread.frames.begin() && std::prev(end)->file.ends_with(kOwnCaller)) --end;
      const std::string_view package = own->file.substr(0, own->file.rfind('/') + 1);
      return {thread.interrupted, {thread.frames.begin(), end}, package};
    }
  const auto current = std::ranges::find_if(threads, &Thread::interrupted);
  return current != threads.end() ? *current : Thread{};
}

/// The part of a file's path inside its library; empty for the user's own files.
std::string_view path_in_library(std::string_view file, std::string_view own) {
  for (const std::string_view place : {"/site-packages/", "/dist-packages/", "/lib/python3."})
    if (const auto at = file.rfind(place); at != std::string_view::npos) return file.substr(at + place.size());
  if (!own.empty() && file.starts_with(own)) return file.substr(own.size());
  return file.starts_with("<frozen ") ? file : std::string_view();
}

bool has_any(std::string_view text, const auto& words) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::any_of(words, [&](const char* word) { return lower.find(word) != std::string::npos; });
}

bool has_module_word(std::string_view path) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (auto begin = path.begin(); begin != path.end();) {
    begin = std::find_if(begin, path.end(), is_part);
    const auto end = std::find_if_not(begin, path.end(), is_part);
    if (std::ranges::count(kModules, std::string_view(begin, end)) > 0) return true;
    begin = end;
  }
  return false;
}

/// Whether the innermost native frames, down to the interpreter that called them, are those of a collective.
bool waits_natively(const std::vector<std::string_view>& native) {
  for (std::string_view frame : native) {
    if (frame.find(kInterpreter) != std::string_view::npos) return false;
    frame = frame.substr(0, frame.rfind('['));
    const auto folder = frame.substr(0, frame.find('(')).rfind('/');
    if (has_any(frame.substr(folder == std::string_view::npos ? 0 : folder), kNative)) return true;
  }
  return false;
}

std::string text_of(const Frame& frame) {
  return std::string(frame.file) + ", line " + std::string(frame.line) + " in " + std::string(frame.function);
}

}  // namespace

StackSummary summarize_stacks(std::string_view text) {
  const Stacks stacks = parse_stacks(text);
  const Thread thread = functions_thread(stacks.threads);
  StackSummary summary;
  for (const Frame& frame : thread.frames)
    summary.frames += "  File \"" + std::string(frame.file) + "\", line " + std::string(frame.line) + " in " +
                      std::string(frame.function) + "\n";
  if (thread.interrupted || stacks.threads.empty()) summary.waits = waits_natively(stacks.native);
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = thread.frames[i];
    const std::string_view path = path_in_library(frame.file, thread.own);
    if (path.empty()) {
      summary.place = text_of(frame);
      summary.in_library = i > 0;
      break;
    }
    if (summary.waits_in.empty() && (has_any(frame.function, kCalls) || (i == 0 && has_module_word(path))))
      summary.waits_in = frame.function;
  }
  summary.waits = summary.waits || !summary.waits_in.empty();
  if (summary.place.empty() && !thread.frames.empty()) {  // a library called by us: a backend that starts
    summary.place = text_of(thread.frames.front());
    summary.in_library = true;
  }
  return summary;
}

}  // namespace lockstep::driver
