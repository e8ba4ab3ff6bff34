#pragma once

#include <torch/torch.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Internals of data loaders: how samples become batches, and the threads that load them ahead.
namespace lockstep::torch::detail {

template <class T>
struct Collation {
  /// Samples that cannot be stacked stay a vector.
  static std::vector<T> apply(std::vector<T> samples) { return samples; }
};

template <class T>
auto collated(std::vector<T> samples) {
  return Collation<T>::apply(std::move(samples));
}
/// A batch that the dataset has already collated.
template <class Batch>
Batch collated(Batch batch) {
  return batch;
}

template <>
struct Collation<::torch::Tensor> {
  static ::torch::Tensor apply(const std::vector<::torch::Tensor>& samples) { return ::torch::stack(samples); }
};

/// Integers become int64, as in Python and as losses expect labels; bool, bytes and floating-point types stay.
template <class T>
requires std::is_arithmetic_v<T>
struct Collation<T> {
  using Stored =
      std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, std::uint8_t>,
                         std::int64_t, std::conditional_t<std::is_same_v<T, long double>, double, T>>;

  static ::torch::Tensor apply(const std::vector<T>& samples) {
    auto numbers =
        ::torch::empty({static_cast<std::int64_t>(samples.size())}, ::c10::CppTypeToScalarType<Stored>::value);
    auto* next = numbers.template data_ptr<Stored>();
    for (const T sample : samples) *next++ = static_cast<Stored>(sample);
    return numbers;
  }
};

template <class... T>
struct Collation<std::tuple<T...>> {
  static auto apply(std::vector<std::tuple<T...>> samples) {
    return [&]<std::size_t... part>(std::index_sequence<part...>) { return std::make_tuple(column<part>(samples)...); }
    (std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t part>
  static auto column(std::vector<std::tuple<T...>>& samples) {
    std::vector<std::tuple_element_t<part, std::tuple<T...>>> values;
    values.reserve(samples.size());
    for (auto& sample : samples) values.push_back(std::move(std::get<part>(sample)));
    return collated(std::move(values));
  }
};

template <class A, class B>
struct Collation<std::pair<A, B>> {
  static auto apply(std::vector<std::pair<A, B>> samples) {
    std::vector<A> first;
    std::vector<B> second;
    for (auto& sample : samples) {
      first.push_back(std::move(sample.first));
      second.push_back(std::move(sample.second));
    }
    return std::pair(collated(std::move(first)), collated(std::move(second)));
  }
};

template <class Data, class Target>
struct Collation<::torch::data::Example<Data, Target>> {
  static auto apply(std::vector<::torch::data::Example<Data, Target>> samples) {
    std::vector<Data> data;
    std::vector<Target> targets;
    for (auto& sample : samples) {
      data.push_back(std::move(sample.data));
      targets.push_back(std::move(sample.target));
    }
    auto one = collated(std::move(data));
    auto other = collated(std::move(targets));
    return ::torch::data::Example<decltype(one), decltype(other)>{std::move(one), std::move(other)};
  }
};

template <class Data>
struct Collation<::torch::data::Example<Data, ::torch::data::example::NoTarget>> {
  static auto apply(std::vector<::torch::data::Example<Data, ::torch::data::example::NoTarget>> samples) {
    std::vector<Data> data;
    for (auto& sample : samples) data.push_back(std::move(sample.data));
    auto one = collated(std::move(data));
    return ::torch::data::Example<decltype(one), ::torch::data::example::NoTarget>{std::move(one)};
  }
};

/// The batch with all its tensors moved to `device`.
template <class T>
T moved(T value, const ::torch::Device& device) {
  if constexpr (std::is_same_v<T, ::torch::Tensor>) {
    return value.device() == device ? value : value.to(device, /*non_blocking=*/true);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... part) { ((part = moved(std::move(part), device)), ...); }, value);
  } else if constexpr (requires {
                         value.data = moved(std::move(value.data), device);
                         value.target;
                       }) {
    value.data = moved(std::move(value.data), device);
    value.target = moved(std::move(value.target), device);
  } else if constexpr (requires {
                         value.push_back(std::move(value.back()));
                         requires !std::is_arithmetic_v<typename T::value_type>;
                       }) {
    for (auto& part : value) part = moved(std::move(part), device);
  }
  return value;
}

/// Iterates over the batches of a loader's pass; `State` has `batch`, and advance() gets the next one.
template <class State, class Batch>
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  /// No state: the end.
  explicit BatchIterator(State* state = nullptr) : state_(state) {}
  reference operator*() const { return *state_->batch; }
  pointer operator->() const { return &*state_->batch; }
  BatchIterator& operator++() {
    if (!state_->advance()) state_ = nullptr;
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(const BatchIterator& other) const { return state_ == other.state_; }

 private:
  State* state_;
};

/// Loads numbered batches ahead, on threads, and returns them in the order of their numbers.
template <class Batch>
class Batches {
 public:
  using Load = std::function<Batch(int thread, std::int64_t number)>;

  /// With no threads, next() loads.
  Batches(Load load, int threads, int prefetch, std::int64_t count) : load_(std::move(load)), count_(count) {
    slots_.resize(static_cast<std::size_t>(threads) * static_cast<std::size_t>(prefetch));
    for (int thread = 0; thread < threads; ++thread) threads_.emplace_back([this, thread] { run(thread); });
  }
  ~Batches() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// Returns nothing after the last one. Rethrows an exception of the loading function; that batch is then lost.
  std::optional<Batch> next() {
    if (handed_ == count_) return std::nullopt;
    if (threads_.empty()) return load_(0, handed_++);
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[static_cast<std::size_t>(handed_) % slots_.size()];
    changed_.wait(lock, [&] { return slot.batch || slot.error; });
    Slot taken = std::exchange(slot, {});
    ++handed_;
    lock.unlock();
    changed_.notify_all();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
  }

 private:
  struct Slot {
    std::optional<Batch> batch{};
    std::exception_ptr error{};
  };

  void run(int thread) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] {
        return stop_ || begun_ == count_ || begun_ < handed_ + static_cast<std::int64_t>(slots_.size());
      });
      if (stop_ || begun_ == count_) return;
      const std::int64_t number = begun_++;
      lock.unlock();
      Slot made;
      try {
        made.batch = load_(thread, number);
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      slots_[static_cast<std::size_t>(number) % slots_.size()] = std::move(made);
      changed_.notify_all();
    }
  }

  const Load load_;
  const std::int64_t count_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::int64_t begun_ = 0;
  std::int64_t handed_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::torch::detail
