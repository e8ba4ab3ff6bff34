#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::tune {

/// `text` for HTML and SVG: markup is escaped, control characters and invalid UTF-8 are replaced.
std::string escaped(std::string_view text);

/// The colour of a share from 0 (worst, red) to 1 (best, blue), as "#rrggbb".
std::string quality_colour(double share);

/// A number line from `low` to `high`, drawn from pixel `from` to pixel `to`.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double from = 0, to = 1;

  /// An axis around all finite values, with a margin. Logarithmic if all are positive and span over 1000 to 1.
  static Axis around(const std::vector<double>& values, double from, double to);
  double at(double value) const;
  /// Round numbers on it, about six.
  std::vector<double> ticks() const;
};

/// An SVG picture that grows by appending. Texts are escaped; coordinates are pixels of a 960 x 540 picture.
class Picture {
 public:
  static constexpr double kWidth = 960, kHeight = 540;

  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  /// `look`: further attributes, as in "class='front'"; not escaped.
  void path(const std::vector<std::pair<double, double>>& points, std::string_view look, std::string_view hover = "");
  void circle(double x, double y, double radius, std::string_view look, std::string_view hover = "");
  void box(double x, double y, double width, double height, std::string_view look, std::string_view hover = "");
  /// `anchor`: start, middle or end.
  void text(double x, double y, std::string_view anchor, std::string_view what, std::string_view css_class = "");
  /// Ticks, lines and a title at the left and at the bottom.
  void x_axis(const Axis& axis, double y, double top, std::string_view title);
  void y_axis(const Axis& axis, double x, double right, std::string_view title);
  /// A scale of colours at the right edge, from `worst` to `best`.
  void colour_scale(double worst, double best, std::string_view title);

  /// The picture in a page that needs nothing else. `note` is a line below it.
  std::string page(std::string_view title, std::string_view note) const;

 private:
  void hover_and_close(std::string_view element, std::string_view hover);
  std::string body_;
};

}  // namespace lockstep::tune
