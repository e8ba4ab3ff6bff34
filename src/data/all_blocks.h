#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "data/prefetch.h"
#include "data/watch.h"

namespace lockstep::data {

/// `use(work(0))`, `use(work(1))` and so on. `work` runs ahead on as many threads as there are cores; `use` is called
/// by the calling thread, in order. `step` is for the watch.
template <class Work, class Use>
void for_all_blocks(const std::string& step, std::size_t blocks, const Work& work, const Use& use) {
  using Result = std::invoke_result_t<Work, std::size_t>;
  if (blocks == 0) return;
  std::size_t next = 0;
  const auto begin = [&]() -> std::optional<typename Prefetcher<Result>::Work> {
    if (next == blocks) return std::nullopt;
    return [&work, block = next++] { return work(block); };
  };
  const int threads = static_cast<int>(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, blocks));
  Prefetcher<Result> prefetcher(begin, threads + 1);
  prefetcher.start(threads);
  for (std::size_t done = 0; done < blocks; ++done) {
    Watch* const watch = Watch::current();
    const auto tick = [&] {
      if (watch) watch->tick(step, static_cast<std::int64_t>(done), static_cast<std::int64_t>(blocks));
    };
    tick();
    while (!prefetcher.wait(std::chrono::milliseconds(100))) tick();
    use(*prefetcher.take());
  }
}

}  // namespace lockstep::data
