#include "tune/kernel_mixture.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tune/domain.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kFullWeight = 25;  // the newest kernels; older ones count less and less
constexpr double kNarrowest = 0.01;

/// The logarithm of the height of a normal kernel that is cut to [0, 1].
float log_height(float place, float sigma) {
  const double inside = normal_cdf((1 - place) / sigma) - normal_cdf(-place / sigma);
  return static_cast<float>(-std::log(inside * sigma * std::sqrt(2 * std::numbers::pi)));
}

}  // namespace

KernelMixture::KernelMixture(const Space& space, const std::vector<int>& dimensions, std::size_t capacity,
                             double prior_weight)
    : space_(space), capacity_(capacity), prior_weight_(prior_weight) {
  for (const int d : dimensions) {
    columns_.emplace_back();
    columns_.back().dimension = d;
    columns_.back().is_category =
        space_.dimensions()[static_cast<std::size_t>(d)].domain.kind == Domain::Kind::category;
  }
  update();
}

KernelMixture::Slot KernelMixture::free_slot() {
  if (free_.empty()) {
    if (used_ == weights_.size()) {
      const Eigen::Index size = std::max<Eigen::Index>(32, 2 * weights_.size());
      weights_.conservativeResize(size);
      log_scales_.resize(size);
      exponents_.resize(size);
      for (Column& column : columns_) {
        column.place.conservativeResize(size);
        column.precision.conservativeResize(size);
        column.log_scale.conservativeResize(size);
        column.step.resize(static_cast<std::size_t>(size));
      }
    }
    free_.push_back(used_++);
  }
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void KernelMixture::insert(TrialNumber trial, const Point& point) {
  const Slot slot = free_slot();
  const std::pair<TrialNumber, Slot> kernel{trial, slot};
  kernels_.insert(std::upper_bound(kernels_.begin(), kernels_.end(), kernel), kernel);
  for (Column& column : columns_) {
    const Domain& domain = space_.dimensions()[static_cast<std::size_t>(column.dimension)].domain;
    const double value = point[static_cast<std::size_t>(column.dimension)];
    if (column.is_category) {
      column.place[slot] = static_cast<float>(value);
      continue;
    }
    const auto [low, high] = unit_interval(domain, value);
    column.step[slot] = is_discrete(domain) ? static_cast<float>(high - low) : 0;
    column.place[slot] = static_cast<float>(to_unit(domain, value));
    const std::pair<float, Slot> entry{column.place[slot], slot};
    const auto place = column.order.insert(std::upper_bound(column.order.begin(), column.order.end(), entry), entry);
    const auto at = static_cast<std::size_t>(place - column.order.begin());
    set_widths(column, at == 0 ? 0 : at - 1, at + 2);
  }
  update();
  if (kernels_.size() > capacity_) erase(kernels_.front().first);
}

void KernelMixture::erase(TrialNumber trial) {
  const auto found = std::lower_bound(kernels_.begin(), kernels_.end(), std::pair<TrialNumber, Slot>{trial, 0});
  if (found == kernels_.end() || found->first != trial) return;
  const Slot slot = found->second;
  kernels_.erase(found);
  free_.push_back(slot);
  weights_[slot] = 0;
  for (Column& column : columns_) {
    if (column.is_category) continue;
    const std::pair<float, Slot> entry{column.place[slot], slot};
    const auto place = column.order.erase(std::lower_bound(column.order.begin(), column.order.end(), entry));
    const auto at = static_cast<std::size_t>(place - column.order.begin());
    set_widths(column, at == 0 ? 0 : at - 1, at + 1);
  }
  update();
}

void KernelMixture::set_widths(Column& column, std::size_t begin, std::size_t end) {
  const auto& order = column.order;
  for (std::size_t at = begin; at < std::min(end, order.size()); ++at) {
    const auto [place, slot] = order[at];
    float sigma = at == 0 ? 0 : place - order[at - 1].first;
    if (at + 1 < order.size()) sigma = std::max(sigma, order[at + 1].first - place);
    if (order.size() == 1) sigma = std::max(place, 1 - place);  // to the farther bound
    // With 0.4 of a step, the density at the middle of the kernel's own interval is that of all mass inside of it.
    sigma = std::clamp(sigma, std::max(least_sigma_, std::min(0.4F * column.step[slot], 1.0F)), 1.0F);
    column.precision[slot] = 0.5F / (sigma * sigma);
    column.log_scale[slot] = log_height(place, sigma);
  }
}

void KernelMixture::update() {
  const std::size_t count = kernels_.size();
  share_ = prior_weight_ / static_cast<double>(count + 1);
  // A handful of kernels never claims to know everything.
  const auto least = static_cast<float>(std::max(kNarrowest, 1 / static_cast<double>(count + 2)));
  if (least != least_sigma_) {
    least_sigma_ = least;
    for (Column& column : columns_) set_widths(column, 0, column.order.size());
  }
  log_scales_.head(used_).setZero();
  for (const Column& column : columns_) {
    if (!column.is_category) log_scales_.head(used_) += column.log_scale.head(used_);
  }
  total_weight_ = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const bool is_full = n + kFullWeight >= count;
    const double weight = is_full ? 1 : static_cast<double>(n + 1) / static_cast<double>(count - kFullWeight);
    weights_[kernels_[n].second] = static_cast<float>(weight);
    total_weight_ += weight;
  }
}

double KernelMixture::draw_value(const Column& column, Slot slot, RandomNumbers& random) const {
  const Domain& domain = space_.dimensions()[static_cast<std::size_t>(column.dimension)].domain;
  if (slot == used_) return from_unit(domain, random.uniform());
  if (column.is_category) {
    const bool is_other = random.uniform() * (1 + domain.choices * share_) >= 1;
    return is_other ? static_cast<double>(random.below(domain.choices)) : column.place[slot];
  }
  const double sigma = std::sqrt(0.5 / column.precision[slot]);
  double drawn;
  do {
    drawn = column.place[slot] + sigma * random.normal();
  } while (drawn < 0 || drawn > 1);  // a third or more is inside, as sigma is at most 1
  return from_unit(domain, drawn);
}

void KernelMixture::draw(Point& point, const Point& fixed, RandomNumbers& random) const {
  Slot slot = used_;  // the uniform density
  double at = random.uniform() * (total_weight_ + prior_weight_) - prior_weight_;
  for (std::size_t n = 0; at >= 0 && n < kernels_.size(); ++n) {
    slot = kernels_[n].second;
    at -= weights_[slot];
  }
  for (const Column& column : columns_) {
    const auto d = static_cast<std::size_t>(column.dimension);
    const bool is_open = d >= fixed.size() || std::isnan(fixed[d]);
    point[d] = is_open ? draw_value(column, slot, random) : fixed[d];
  }
}

double KernelMixture::log_density(const Point& point) const {
  const Eigen::Index size = used_;
  auto exponents = exponents_.head(size);
  exponents = log_scales_.head(size);
  for (const Column& column : columns_) {
    const Domain& domain = space_.dimensions()[static_cast<std::size_t>(column.dimension)].domain;
    const double value = point[static_cast<std::size_t>(column.dimension)];
    if (column.is_category) {
      const double scale = domain.choices / (1 + domain.choices * share_);
      const auto same = static_cast<float>(std::log((1 + share_) * scale));
      const auto other = static_cast<float>(std::log(share_ * scale));
      const auto choice = static_cast<float>(value);
      exponents += (column.place.head(size) == choice).select(same, Eigen::ArrayXf::Constant(size, other));
    } else {
      const auto place = static_cast<float>(to_unit(domain, value));
      exponents -= column.precision.head(size) * (column.place.head(size) - place).square();
    }
  }
  // The uniform density keeps the sum above 0, so that exponents need no shift. Below -80 they would become denormal
  // numbers, with which processors are slow.
  const double sum = (weights_.head(size) * exponents.max(-80.0F).exp()).sum();
  return std::log((prior_weight_ + sum) / (prior_weight_ + total_weight_));
}

}  // namespace lockstep::tune
