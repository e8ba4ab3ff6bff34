#include "collective/reduce.h"

#include <lockstep/error.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstring>
#include <string>

#include "collective/reduce_sets.h"

namespace lockstep::collective {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<DTypeFacts, kDTypes> kFacts{{{"float32", 4},
                                                  {"float64", 8},
                                                  {"bfloat16", 2},
                                                  {"float16", 2},
                                                  {"int8", 1},
                                                  {"int16", 2},
                                                  {"int32", 4},
                                                  {"int64", 8},
                                                  {"uint8", 1},
                                                  {"uint16", 2},
                                                  {"uint32", 4},
                                                  {"uint64", 8},
                                                  {"boolean", 1}}};
constexpr std::array<std::string_view, kReduceOps> kOpNames{"sum",     "avg",     "min",    "max",
                                                            "product", "bit_and", "bit_or", "bit_xor"};

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= kFacts.size()) throw ConfigError("[collective] there is no dtype " + std::to_string(index));
  return kFacts[index];
}

bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    // Not every compiler's __builtin_cpu_supports knows F16C.
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
#else
  return false;
#endif
}

void check_defined(bool defined, DType dtype, ReduceOp op) {
  if (!defined)
    throw ConfigError("[collective] " + std::string(to_string(op)) + " of " + std::string(to_string(dtype)) +
                      " elements is not defined; use another operation or dtype");
}

void run(ReduceKernel kernel, void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op) {
  check_defined(kernel != nullptr, dtype, op);
  if (count == 0 || in.empty()) return;
  if (in.size() > 1) return kernel(out, in.data(), in.size(), count, in.size());
  if (out != in[0]) std::memcpy(out, in[0], count * size_of(dtype));
}

void run_partial(ReduceKernel kernel, void* out, std::span<const void* const> in, std::size_t count, DType dtype,
                 ReduceOp op, std::size_t ranks) {
  check_defined(kernel != nullptr, dtype, op);
  if (count > 0 && !in.empty()) kernel(out, in.data(), in.size(), count, ranks);
}

}  // namespace

std::size_t size_of(DType dtype) { return facts(dtype).size; }

std::string_view to_string(DType dtype) { return facts(dtype).name; }

std::string_view to_string(ReduceOp op) {
  const auto index = static_cast<std::size_t>(op);
  if (index >= kOpNames.size()) throw ConfigError("[collective] there is no operation " + std::to_string(index));
  return kOpNames[index];
}

bool supported(DType dtype, ReduceOp op) { return portable_kernel(dtype, op) != nullptr; }

void reduce(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op) {
  run(has_avx2() ? avx2_kernel(dtype, op) : portable_kernel(dtype, op), out, in, count, dtype, op);
}

void reduce_portable(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op) {
  run(portable_kernel(dtype, op), out, in, count, dtype, op);
}

DType accumulator_of(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

void widen(float* out, const void* in, std::size_t count, DType dtype) {
  const WidenKernel kernel = has_avx2() ? avx2_widen_kernel(dtype) : portable_widen_kernel(dtype);
  if (kernel == nullptr) throw InternalError("[collective] widen() of " + std::string(to_string(dtype)));
  kernel(out, in, count);
}

void reduce_partial(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op,
                    std::size_t ranks) {
  run_partial(has_avx2() ? avx2_partial_kernel(dtype, op) : portable_partial_kernel(dtype, op), out, in, count, dtype,
              op, ranks);
}

void reduce_partial_portable(void* out, std::span<const void* const> in, std::size_t count, DType dtype, ReduceOp op,
                             std::size_t ranks) {
  run_partial(portable_partial_kernel(dtype, op), out, in, count, dtype, op, ranks);
}

}  // namespace lockstep::collective
