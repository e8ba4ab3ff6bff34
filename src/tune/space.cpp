#include "tune/space.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "tune/domain.h"
#include "tune/shown_value.h"
#include "tune/space_node.h"

namespace lockstep::tune {
namespace {

using Dimensions = std::vector<Dimension>;

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

/// The number of grid points inside a node. As a double, because products can be huge.
double count_grid(const SpaceNode& node, const Dimensions& dimensions) {
  if (node.kind == SpaceNode::Kind::domain) {
    if (!dimensions[node.dimension].grid) return 1;
    double sum = 0;
    for (const auto& child : node.children) sum += count_grid(child, dimensions);
    return sum;
  }
  double product = 1;
  for (const auto& child : node.children) product *= count_grid(child, dimensions);
  return product;
}

void set_grid(const SpaceNode& node, const Dimensions& dimensions, std::int64_t index, Point& point) {
  if (node.kind == SpaceNode::Kind::domain) {
    if (!dimensions[node.dimension].grid) return;
    for (std::size_t choice = 0; choice < node.children.size(); ++choice) {
      const auto inside = static_cast<std::int64_t>(count_grid(node.children[choice], dimensions));
      if (index < inside) {
        point[node.dimension] = static_cast<double>(choice);
        return set_grid(node.children[choice], dimensions, index, point);
      }
      index -= inside;
    }
    return;
  }
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    const auto inside = static_cast<std::int64_t>(count_grid(*child, dimensions));
    set_grid(*child, dimensions, index % inside, point);
    index /= inside;
  }
}

Value config_of(const SpaceNode& node, const Dimensions& dimensions, const Point& point) {
  switch (node.kind) {
    case SpaceNode::Kind::dict: {
      Value dict = Value::object();
      for (std::size_t n = 0; n < node.keys.size(); ++n) {
        dict[node.keys[n]] = config_of(node.children[n], dimensions, point);
      }
      return dict;
    }
    case SpaceNode::Kind::list: {
      Value list = Value::array();
      for (const auto& child : node.children) list.push_back(config_of(child, dimensions, point));
      return list;
    }
    case SpaceNode::Kind::domain: {
      const Dimension& dimension = dimensions[node.dimension];
      const double value = point[node.dimension];
      if (!contains(dimension.domain, value)) {
        throw InternalError("[tune.space] " + dimension.name + " has the value " + to_json(Value(value)) +
                            " in a point, which is outside of its domain");
      }
      if (!node.children.empty()) return config_of(node.children[static_cast<std::size_t>(value)], dimensions, point);
      if (dimension.domain.kind == Domain::Kind::integer) return static_cast<std::int64_t>(value);
      return value;
    }
    default:
      return node.constant;
  }
}

std::string text_of(const Value& value) { return to_json(shown(value)); }

/// Whole numbers without a fraction.
std::string number_text(double number) {
  constexpr double kMost = 0x1p53;
  const bool is_whole = number == std::floor(number) && std::abs(number) <= kMost;
  return to_json(is_whole ? Value(static_cast<std::int64_t>(number)) : Value(number));
}

/// Whether two values are equal; the order of keys does not matter.
bool is_same(const Value& a, const Value& b) {
  if (a.size() != b.size()) return false;
  if (a.is_object() && b.is_object()) {
    return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
      const auto found = b.find(item.key());
      return found != b.end() && is_same(item.value(), *found);
    });
  }
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), is_same);
  return a == b;
}

/// Reads a configuration into a point. What does not fit is said in `problem`.
class PointReader {
 public:
  PointReader(const Dimensions& dimensions, Point& point) : dimensions_(dimensions), point_(point) {}

  bool read(const SpaceNode& node, const Value& value, const std::string& name) {
    switch (node.kind) {
      case SpaceNode::Kind::dict:
        return read_dict(node, value, name);
      case SpaceNode::Kind::list:
        return read_list(node, value, name);
      case SpaceNode::Kind::domain:
        return node.children.empty() ? read_number(node, value, name) : read_choice(node, value, name);
      case SpaceNode::Kind::computed:
        return fail(name, "is computed by sample_from; leave it out");
      default:
        return is_same(value, node.constant) ||
               fail(name, "is " + text_of(value) + ", but the space has the constant " + text_of(node.constant) +
                              "; leave it out");
    }
  }

  const std::string& problem() const { return problem_; }

 private:
  bool fail(const std::string& name, const std::string& what) {
    problem_ = (name.empty() ? "the configuration" : name) + " " + what;
    return false;
  }

  bool read_dict(const SpaceNode& node, const Value& value, const std::string& name) {
    if (!value.is_object()) return fail(name, "is " + text_of(value) + "; it must be a dict");
    for (const auto& [key, part] : value.items()) {
      const std::string inner = name.empty() ? key : key == "$tuple" ? name : name + "/" + key;
      const auto found = std::find(node.keys.begin(), node.keys.end(), key);
      if (found == node.keys.end()) {
        return fail(inner, "is no parameter of the space; there are " + joined(closest_first(node.keys, key), ", "));
      }
      if (!read(node.children[static_cast<std::size_t>(found - node.keys.begin())], part, inner)) return false;
    }
    return true;
  }

  bool read_list(const SpaceNode& node, const Value& value, const std::string& name) {
    if (!value.is_array() || value.size() != node.children.size()) {
      return fail(name, "is " + text_of(value) + "; it must be a list of " + std::to_string(node.children.size()));
    }
    for (std::size_t n = 0; n < value.size(); ++n) {
      if (!read(node.children[n], value[n], name + "/" + std::to_string(n))) return false;
    }
    return true;
  }

  bool read_number(const SpaceNode& node, const Value& value, const std::string& name) {
    const Domain& domain = dimensions_[node.dimension].domain;
    if (!value.is_number()) return fail(name, "is " + text_of(value) + "; it must be a number");
    if (!contains(domain, value.get<double>())) {
      std::string wanted = domain.kind == Domain::Kind::integer ? "a whole number" : "a number";
      if (domain.kind != Domain::Kind::normal) {
        wanted += " from " + number_text(domain.lower) + " to " + number_text(domain.upper);
      }
      if (domain.quantum > 0 && domain.quantum != 1) wanted += ", a multiple of " + number_text(domain.quantum);
      return fail(name, "is " + text_of(value) + "; it must be " + wanted);
    }
    point_[node.dimension] = value.get<double>();
    return true;
  }

  bool read_choice(const SpaceNode& node, const Value& value, const std::string& name) {
    const Point before = point_;
    for (std::size_t choice = 0; choice < node.children.size(); ++choice) {
      if (read(node.children[choice], value, name)) {
        point_[node.dimension] = static_cast<double>(choice);
        return true;
      }
      point_ = before;
    }
    return fail(name,
                "is " + text_of(value) + ", which is none of its " + std::to_string(node.children.size()) + " values");
  }

  const Dimensions& dimensions_;
  Point& point_;
  std::string problem_;
};

}  // namespace

std::int64_t Space::grid_size() const {
  constexpr double kMost = 1e15;
  const double size = count_grid(*root_, dimensions_);
  if (size > kMost)
    throw ConfigError("[tune.space] the grid has more than 1e15 points; use choice for some parameters");
  return static_cast<std::int64_t>(size);
}

Point Space::grid_point(std::int64_t index) const {
  if (index < 0 || index >= grid_size()) {
    throw InternalError("[tune.space] grid point " + std::to_string(index) + " of " + std::to_string(grid_size()));
  }
  Point point(dimensions_.size(), kAbsent);
  set_grid(*root_, dimensions_, index, point);
  return point;
}

bool Space::is_active(const Point& point, int dimension) const {
  const Dimension& it = dimensions_[static_cast<std::size_t>(dimension)];
  return it.parent < 0 ||
         (is_active(point, it.parent) && point[static_cast<std::size_t>(it.parent)] == it.parent_value);
}

Value Space::config(const Point& point) const { return config_of(*root_, dimensions_, point); }

Point Space::point(const Value& config) const {
  Point point(dimensions_.size(), kAbsent);
  PointReader reader(dimensions_, point);
  if (root_->kind == SpaceNode::Kind::constant && config.is_object() && config.empty()) return point;
  if (!reader.read(*root_, config, "")) throw ConfigError("[tune.space] " + reader.problem());
  return point;
}

}  // namespace lockstep::tune
