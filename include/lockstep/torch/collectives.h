#pragma once

#include <torch/torch.h>

#include <chrono>
#include <lockstep/torch/tensor_value.h>
#include <lockstep/value.h>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::torch {

/// This worker's rank, and the number of workers; 0 and 1 outside a worker.
int rank();
int world_size();

/// Where this worker computes: its first GPU, or the CPU. A worker sees only the GPUs that it was given.
::torch::Device device();

/// How the workers connect.
struct GroupOptions {
  /// "lockstep" (shared memory on a node, Gloo's transport between nodes), "gloo", or "auto": lockstep unless workers
  /// of one node cannot share memory.
  std::string backend = "auto";
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< timeout of a collective
};

/// Connects the workers. The first collective calls it; to set options, call it yourself before that, on every rank.
/// Throws ConfigError if the workers are already connected. Rank 0 hosts a store on its node's address
/// (Session::node_address), on a port that the system chooses, and sends the port to the others through the session. On
/// one machine that address is the loopback, and nothing is reachable from other machines.
void join(const GroupOptions& options = {});

/// How the values of all ranks are combined.
enum class Reduce { sum, mean, min, max, product };

/// Collectives: every rank must call them, with tensors of the same shape and type. If a rank has died or stays silent
/// until the timeout, they throw c10::Error on the others; the run is then retried from its checkpoint.

/// Combines the tensors of all ranks, element by element; the result is in `tensor` on every rank, and is returned.
::torch::Tensor all_reduce(const ::torch::Tensor& tensor, Reduce how = Reduce::sum);
/// Sets every rank's `tensor` to that of rank `root`, and returns it.
::torch::Tensor broadcast(const ::torch::Tensor& tensor, int root = 0);
/// The tensors of all ranks, by rank.
std::vector<::torch::Tensor> all_gather(const ::torch::Tensor& tensor);
/// Returns when every rank has called it.
void barrier();

/// The mean of metrics: nested dicts of numbers and of lists of numbers. Results are floats. Throws ConfigError that
/// names the key of a value that is not a number, or, on every rank, the keys that only some ranks have.
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
/// Returns rank `root`'s plain value on every rank.
Value broadcast(const Value& value, int root = 0);
/// The plain values of all ranks, by rank; their sizes may differ.
std::vector<Value> all_gather(const Value& value);

}  // namespace lockstep::torch
