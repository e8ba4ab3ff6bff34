#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tune/importance.h"
#include "tune/random_numbers.h"

namespace lockstep::tune {

/// Grows one regression tree of a Forest on a sample of the trials (drawn with replacement).
class TreeGrower {
 public:
  /// `places`: numbers from 0 to 1, or the index of the choice; NaN: not active. All are borrowed.
  TreeGrower(const std::vector<Dimension>& dimensions, const std::vector<Point>& places,
             const std::vector<double>& values, const ForestOptions& options, std::uint64_t tree);
  Forest::Tree grow();

 private:
  struct Split {
    std::size_t dimension = 0;
    double threshold = 0;    ///< of numbers: those below it go to the left
    std::vector<bool> left;  ///< of choices: those that go to the left
    double gain = 0;
  };

  void split(std::span<std::size_t> rows, Forest::Box box, Forest::Tree& tree);
  std::optional<Split> best_split(std::span<const std::size_t> rows, const Forest::Box& box);
  void try_number(std::span<const std::size_t> rows, std::size_t dimension, std::optional<Split>& best);
  void try_choice(std::span<const std::size_t> rows, std::size_t dimension, std::optional<Split>& best);
  bool goes_left(const Split& split, std::size_t row) const;

  const std::vector<Dimension>& dimensions_;
  const std::vector<Point>& places_;
  const std::vector<double>& values_;
  RandomNumbers random_;
  std::vector<std::size_t> rows_;
  std::size_t smallest_ = 1;  ///< rows of a box
};

}  // namespace lockstep::tune
