#include "tune/tree_grower.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::tune {
namespace {

/// Of the parameters that could be split; the others are left out at random, so that the trees differ.
constexpr double kTried = 5.0 / 6;

/// The sum of values of a group, and what splitting off this group is worth.
struct GroupSum {
  double sum = 0;
  std::size_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double worth() const { return count == 0 ? 0 : sum * sum / static_cast<double>(count); }
};

}  // namespace

TreeGrower::TreeGrower(const std::vector<Dimension>& dimensions, const std::vector<Point>& places,
                       const std::vector<double>& values, const ForestOptions& options, std::uint64_t tree)
    : dimensions_(dimensions), places_(places), values_(values), random_(options.seed, tree) {
  const std::size_t most = static_cast<std::size_t>(std::max(1, options.samples));
  rows_.resize(std::min(values.size(), most));
  for (std::size_t& row : rows_)
    row = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(values.size())));
  smallest_ = std::max<std::size_t>(1, rows_.size() / static_cast<std::size_t>(std::max(1, options.leaves)));
}

Forest::Tree TreeGrower::grow() {
  Forest::Box all;
  for (const Dimension& dimension : dimensions_) {
    Forest::Side side;
    if (dimension.domain.kind == Domain::Kind::category)
      side.choices.assign(static_cast<std::size_t>(std::max(1, dimension.domain.choices)), true);
    all.sides.push_back(std::move(side));
  }
  Forest::Tree tree;
  split(rows_, std::move(all), tree);
  return tree;
}

void TreeGrower::split(std::span<std::size_t> rows, Forest::Box box, Forest::Tree& tree) {
  const auto found = best_split(rows, box);
  if (!found) {
    GroupSum group;
    for (const std::size_t row : rows) group.add(values_[row]);
    box.value = group.sum / static_cast<double>(group.count);
    for (const Forest::Side& side : box.sides) box.weight *= side.share;
    tree.push_back(std::move(box));
    return;
  }
  const auto middle =
      std::stable_partition(rows.begin(), rows.end(), [&](std::size_t row) { return goes_left(*found, row); });
  const auto left_count = static_cast<std::size_t>(middle - rows.begin());
  Forest::Box other = box;
  Forest::Side &left = box.sides[found->dimension], &right = other.sides[found->dimension];
  if (left.choices.empty()) {
    left.high = right.low = found->threshold;
    left.share = left.high - left.low;
    right.share = right.high - right.low;
  } else {
    std::size_t on_left = 0, on_right = 0;
    for (std::size_t i = 0; i < left.choices.size(); ++i) {
      right.choices[i] = right.choices[i] && !found->left[i];
      left.choices[i] = left.choices[i] && found->left[i];
      on_left += left.choices[i] ? 1 : 0;
      on_right += right.choices[i] ? 1 : 0;
    }
    left.share = static_cast<double>(on_left) / static_cast<double>(left.choices.size());
    right.share = static_cast<double>(on_right) / static_cast<double>(left.choices.size());
  }
  split(rows.first(left_count), std::move(box), tree);
  split(rows.subspan(left_count), std::move(other), tree);
}

std::optional<TreeGrower::Split> TreeGrower::best_split(std::span<const std::size_t> rows, const Forest::Box& box) {
  if (rows.size() < 2 * smallest_) return std::nullopt;
  std::vector<std::size_t> open;
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    const bool is_active =
        std::none_of(rows.begin(), rows.end(), [&](std::size_t row) { return std::isnan(places_[row][d]); });
    const bool differs =
        std::any_of(rows.begin(), rows.end(), [&](std::size_t row) { return places_[row][d] != places_[rows[0]][d]; });
    if (is_active && differs && box.sides[d].share > 0) open.push_back(d);
  }
  const auto tried = static_cast<std::size_t>(std::ceil(kTried * static_cast<double>(open.size())));
  for (std::size_t i = 0; i < tried; ++i) {
    const auto others = static_cast<std::int64_t>(open.size() - i);
    std::swap(open[i], open[i + static_cast<std::size_t>(random_.below(others))]);
  }
  std::optional<Split> best;
  for (std::size_t i = 0; i < tried; ++i) {
    if (dimensions_[open[i]].domain.kind == Domain::Kind::category)
      try_choice(rows, open[i], best);
    else
      try_number(rows, open[i], best);
  }
  GroupSum all;
  double squares = 0;
  for (const std::size_t row : rows) {
    all.add(values_[row]);
    squares += values_[row] * values_[row];
  }
  // Equal values differ by rounding only.
  const bool is_worth_it = best && best->gain - all.worth() > 1e-12 * squares;
  return is_worth_it ? std::move(best) : std::nullopt;
}

void TreeGrower::try_number(std::span<const std::size_t> rows, std::size_t dimension, std::optional<Split>& best) {
  std::vector<std::pair<double, double>> sorted;
  GroupSum left, right;
  for (const std::size_t row : rows) {
    sorted.emplace_back(places_[row][dimension], values_[row]);
    right.add(values_[row]);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i + 1 < sorted.size(); ++i) {
    left.add(sorted[i].second);
    right.sum -= sorted[i].second;
    --right.count;
    if (sorted[i].first == sorted[i + 1].first || left.count < smallest_ || right.count < smallest_) continue;
    const double threshold = (sorted[i].first + sorted[i + 1].first) / 2;
    const double gain = left.worth() + right.worth();
    if (threshold > sorted[i].first && (!best || gain > best->gain)) best = Split{dimension, threshold, {}, gain};
  }
}

void TreeGrower::try_choice(std::span<const std::size_t> rows, std::size_t dimension, std::optional<Split>& best) {
  std::vector<GroupSum> groups(static_cast<std::size_t>(dimensions_[dimension].domain.choices));
  GroupSum right;
  for (const std::size_t row : rows) {
    groups[static_cast<std::size_t>(places_[row][dimension])].add(values_[row]);
    right.add(values_[row]);
  }
  // Sorted by their means, the best division into two groups is a cut.
  std::vector<std::size_t> seen;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].count > 0) seen.push_back(i);
  std::stable_sort(seen.begin(), seen.end(), [&](std::size_t a, std::size_t b) {
    return groups[a].sum * static_cast<double>(groups[b].count) < groups[b].sum * static_cast<double>(groups[a].count);
  });
  GroupSum left;
  std::vector<bool> on_left(groups.size(), false);
  for (std::size_t i = 0; i + 1 < seen.size(); ++i) {
    on_left[seen[i]] = true;
    left.sum += groups[seen[i]].sum;
    left.count += groups[seen[i]].count;
    right.sum -= groups[seen[i]].sum;
    right.count -= groups[seen[i]].count;
    const double gain = left.worth() + right.worth();
    if (left.count < smallest_ || right.count < smallest_ || (best && gain <= best->gain)) continue;
    best = Split{dimension, 0, on_left, gain};
    // Choices that no trial of this box has go where most trials go.
    if (left.count > right.count)
      for (std::size_t choice = 0; choice < groups.size(); ++choice)
        if (groups[choice].count == 0) best->left[choice] = true;
  }
}

bool TreeGrower::goes_left(const Split& split, std::size_t row) const {
  const double place = places_[row][split.dimension];
  return split.left.empty() ? place < split.threshold : split.left[static_cast<std::size_t>(place)];
}

}  // namespace lockstep::tune
