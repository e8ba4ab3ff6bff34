#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "tune/domain.h"
#include "tune/space.h"
#include "tune/space_node.h"

namespace lockstep::tune {
namespace {

constexpr double kMaxInteger = 0x1p53;  // beyond it, neighbours of a double are not 1 apart
constexpr int kMaxSpaceDepth = 200;     // a deeper space is a mistake, and parsing recurses

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw ConfigError("[tune.space] " + (name.empty() ? "param_space" : name) + ": " + what);
}

/// What the options of a kind are.
struct KindRule {
  const char* name;
  Domain::Kind kind;
  bool log, quantum, values;
};

constexpr KindRule kRules[] = {
    {"grid_search", Domain::Kind::category, false, false, true},
    {"choice", Domain::Kind::category, false, false, true},
    {"uniform", Domain::Kind::real, false, false, false},
    {"quniform", Domain::Kind::real, false, true, false},
    {"loguniform", Domain::Kind::real, true, false, false},
    {"qloguniform", Domain::Kind::real, true, true, false},
    {"randint", Domain::Kind::integer, false, false, false},
    {"qrandint", Domain::Kind::integer, false, true, false},
    {"lograndint", Domain::Kind::integer, true, false, false},
    {"qlograndint", Domain::Kind::integer, true, true, false},
    {"randn", Domain::Kind::normal, false, false, false},
    {"qrandn", Domain::Kind::normal, false, true, false},
};

/// Reads the options of one domain.
class DomainReader {
 public:
  DomainReader(const std::string& name, const Value& text) : name_(name), text_(text) {
    if (!text.is_object()) refuse(name, "$domain is " + to_json(text) + "; it must be a dict with a kind");
    const auto kind = text.find("kind");
    if (kind == text.end() || !kind->is_string()) refuse(name, "$domain has no kind: " + to_json(text));
    kind_ = kind->get<std::string>();
  }

  const std::string& kind() const { return kind_; }

  const KindRule& rule() const {
    const auto found =
        std::find_if(std::begin(kRules), std::end(kRules), [&](auto& rule) { return rule.name == kind_; });
    if (found != std::end(kRules)) return *found;
    std::vector<std::string> names{"sample_from"};
    for (const auto& rule : kRules) names.emplace_back(rule.name);
    refuse(name_, in_quotes(kind_) + " is no kind of domain; there are " + joined(names, ", "));
  }

  void allow_only(const std::set<std::string>& options) const {
    for (const auto& [key, value] : text_.items()) {
      if (key != "kind" && !options.contains(key)) {
        refuse(name_, kind_ + " has no option " + in_quotes(key) + "; it has " +
                          joined({options.begin(), options.end()}, ", "));
      }
    }
  }

  double number(const char* option, std::optional<double> otherwise = std::nullopt) const {
    const auto found = text_.find(option);
    if (found == text_.end() && otherwise) return *otherwise;
    if (found == text_.end()) refuse(name_, kind_ + " has no " + option + "; give a number");
    if (!found->is_number() || !std::isfinite(found->get<double>())) {
      refuse(name_, kind_ + " has " + option + " " + to_json(*found) + "; it must be a finite number");
    }
    return found->get<double>();
  }

  double whole_number(const char* option, std::optional<double> otherwise = std::nullopt) const {
    const double number = this->number(option, otherwise);
    if (number != std::floor(number) || std::abs(number) > kMaxInteger) {
      wrong(option, number, "a whole number of at most 2^53");
    }
    return number;
  }

  [[noreturn]] void wrong(const char* option, double value, const std::string& wanted) const {
    refuse(name_, kind_ + " has " + option + " " + to_json(Value(value)) + "; it must be " + wanted);
  }

  const Value& values() const {
    const auto found = text_.find("values");
    if (found == text_.end() || !found->is_array() || found->empty()) {
      refuse(name_, kind_ + " needs a list of values that is not empty");
    }
    return *found;
  }

 private:
  const std::string& name_;
  const Value& text_;
  std::string kind_;
};

/// Replaces the bounds by the first and the last multiple of the quantum between them.
void bound_by_multiples(const DomainReader& reader, Domain& domain) {
  const double q = domain.quantum;
  const double lower = std::ceil(domain.lower / q - 1e-9) * q, upper = std::floor(domain.upper / q + 1e-9) * q;
  if (lower > upper || (domain.log && lower <= 0 && q > upper)) {
    reader.wrong("q", q, "so small that a multiple of it is between lower and upper");
  }
  domain.lower = domain.log && lower <= 0 ? q : lower;
  domain.upper = upper;
}

void read_bounds(const DomainReader& reader, const KindRule& rule, Domain& domain) {
  const bool is_integer = domain.kind == Domain::Kind::integer;
  domain.lower = is_integer ? reader.whole_number("lower") : reader.number("lower");
  domain.upper = is_integer ? reader.whole_number("upper") : reader.number("upper");
  if (domain.lower > domain.upper || (is_integer && !rule.quantum && domain.lower == domain.upper)) {
    reader.wrong("lower", domain.lower, "below upper, which is " + to_json(Value(domain.upper)));
  }
  if (domain.log && domain.lower <= 0) reader.wrong("lower", domain.lower, "above 0");
  if (is_integer && !rule.quantum) domain.upper -= 1;
}

Domain read_domain(const DomainReader& reader, const KindRule& rule) {
  Domain domain;
  domain.kind = rule.kind;
  domain.log = rule.log;
  if (rule.values) {
    reader.allow_only({"values"});
    if (reader.values().size() > 1'000'000) reader.wrong("values", double(reader.values().size()), "at most 1,000,000");
    domain.choices = static_cast<int>(reader.values().size());
    return domain;
  }
  std::set<std::string> options;
  if (rule.quantum) options.insert("q");
  if (domain.kind == Domain::Kind::normal) {
    options.insert({"mean", "sd"});
    domain.mean = reader.number("mean", 0.0);
    domain.sd = reader.number("sd", 1.0);
    if (domain.sd <= 0) reader.wrong("sd", domain.sd, "above 0");
  } else {
    options.insert({"lower", "upper"});
    read_bounds(reader, rule, domain);
  }
  reader.allow_only(options);
  const bool is_integer = domain.kind == Domain::Kind::integer;
  if (is_integer) domain.quantum = 1;
  if (rule.quantum) {
    domain.quantum = is_integer ? reader.whole_number("q", 1.0) : reader.number("q");
    if (domain.quantum <= 0) reader.wrong("q", domain.quantum, "above 0");
    if (domain.kind != Domain::Kind::normal) bound_by_multiples(reader, domain);
  }
  return domain;
}

/// Where a part of the space stands.
struct Place {
  std::string name;
  int parent = -1;
  int parent_value = 0;
  bool in_choice = false;
  int depth = 0;

  Place inside(const std::string& key) const {
    Place inner = *this;
    if (key != "$tuple") inner.name += (name.empty() ? "" : "/") + key;
    ++inner.depth;
    return inner;
  }
};

bool has_domain(const Value& value) {
  if (value.is_object() && value.contains("$domain")) return true;
  return value.is_structured() && std::any_of(value.begin(), value.end(), has_domain);
}

SpaceNode parse_node(const Value& value, const Place& place, std::vector<Dimension>& dimensions);

SpaceNode parse_domain(const Value& value, const Place& place, std::vector<Dimension>& dimensions) {
  if (value.size() != 1) refuse(place.name, "$domain stands beside other keys; it must be the only key of its dict");
  const DomainReader reader(place.name, value["$domain"]);
  SpaceNode node;
  if (reader.kind() == "sample_from") {
    node.kind = SpaceNode::Kind::computed;
    node.constant = value;
    return node;
  }
  const KindRule& rule = reader.rule();
  const bool is_grid = reader.kind() == "grid_search";
  if (is_grid && place.in_choice) {
    refuse(place.name,
           "grid_search stands inside a choice, where it would be tried only by chance; make the outer one "
           "a grid_search, or the inner one a choice");
  }
  node.kind = SpaceNode::Kind::domain;
  node.dimension = static_cast<int>(dimensions.size());
  dimensions.push_back({place.name, read_domain(reader, rule), is_grid, place.parent, place.parent_value});
  if (!rule.values) return node;
  Place inner = place;
  inner.parent = node.dimension;
  inner.parent_value = 0;
  inner.in_choice = !is_grid;
  ++inner.depth;
  for (const auto& choice : reader.values()) {
    node.children.push_back(parse_node(choice, inner, dimensions));
    ++inner.parent_value;
  }
  return node;
}

SpaceNode parse_node(const Value& value, const Place& place, std::vector<Dimension>& dimensions) {
  if (place.depth > kMaxSpaceDepth) refuse(place.name, "nested too deeply; at most 200 levels are read");
  if (value.is_object() && value.contains("$domain")) return parse_domain(value, place, dimensions);
  SpaceNode node;
  if (!has_domain(value)) {
    node.constant = value;
  } else if (value.is_object()) {
    node.kind = SpaceNode::Kind::dict;
    for (const auto& [key, part] : value.items()) {
      node.keys.push_back(key);
      node.children.push_back(parse_node(part, place.inside(key), dimensions));
    }
  } else {
    node.kind = SpaceNode::Kind::list;
    for (const auto& part : value) {
      node.children.push_back(parse_node(part, place.inside(std::to_string(node.children.size())), dimensions));
    }
  }
  return node;
}

}  // namespace

Space Space::parse(const Value& param_space) {
  if (!param_space.is_object()) refuse("", "is " + to_json(param_space) + "; it must be a dict");
  if (param_space.contains("$domain")) refuse("", "is a domain; it must be a dict that has domains as values");
  Space space;
  space.root_ = std::make_shared<SpaceNode>(parse_node(param_space, {}, space.dimensions_));
  return space;
}

}  // namespace lockstep::tune
