#pragma once

#include <torch/torch.h>

#include <chrono>
#include <lockstep/value.h>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::torch {

/// This process's number among all that train together, and how many they are; 0 and 1 outside of a worker.
int rank();
int world_size();

/// Where this worker computes: its first GPU, or the CPU. A worker sees only the GPUs that it was given.
::torch::Device device();

/// How the workers are joined.
struct GroupOptions {
  /// "lockstep": shared memory; "gloo"; "auto": the first where the workers can share memory, else the second.
  std::string backend = "auto";
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< how long an exchange waits for the other ranks
};

/// Joins the workers. Whatever needs the others does it at its first use; call it yourself, on every rank and before
/// that, to choose. Throws ConfigError when they are joined already. Rank 0 hosts a store on 127.0.0.1, at a port of
/// the system's choice that it tells the others through the session; nothing is reachable from other machines.
void join(const GroupOptions& options = {});

/// How values of several ranks become one.
enum class Reduce { sum, mean, min, max, product };

/// The exchanges below: every rank calls them, with tensors of the same shape and type. A rank that died or stays
/// silent until the timeout makes them throw on the others (c10::Error); the run then starts again from its checkpoint.

/// Combines the tensors of all ranks, element by element; the result is in `tensor` on every rank, and is returned.
::torch::Tensor all_reduce(const ::torch::Tensor& tensor, Reduce how = Reduce::sum);
/// Every rank's `tensor` becomes that of rank `root`; it is returned.
::torch::Tensor broadcast(const ::torch::Tensor& tensor, int root = 0);
/// What each rank gave, by rank.
std::vector<::torch::Tensor> all_gather(const ::torch::Tensor& tensor);
/// Returns when every rank has called it.
void barrier();

/// The same for metrics: dicts, however nested, of numbers and of lists of numbers. Results are floats. Throws
/// ConfigError that names the key of what is not a number, or, on every rank, the keys that some ranks have and others
/// do not.
///
///     session.report(lockstep::torch::all_reduce_mean({{"loss", loss}, {"accuracy", correct / seen}}));
Value all_reduce(const Value& metrics, Reduce how = Reduce::mean);
Value all_reduce_mean(const Value& metrics);
/// A single number.
///
///     double loss = lockstep::torch::all_reduce(total / batches);
template <class Number>
requires std::is_arithmetic_v<Number>
double all_reduce(Number number, Reduce how = Reduce::mean) {
  return all_reduce(::torch::full({1}, static_cast<double>(number), ::torch::kFloat64), how).item<double>();
}
template <class Number>
requires std::is_arithmetic_v<Number>
double all_reduce_mean(Number number) { return all_reduce(number, Reduce::mean); }
/// Any plain value of rank `root`.
Value broadcast(const Value& value, int root = 0);
/// Any plain values, which may differ in size, by rank.
std::vector<Value> all_gather(const Value& value);

}  // namespace lockstep::torch
