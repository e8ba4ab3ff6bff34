#include "tune/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "base/utf8.h"
#include "tune/chart.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kLongestLabel = 40;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --faint: #d8dee4; --grey: #7d8590; --accent: #1668c7; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --faint: #30363d; --grey: #848d97; --accent: #58a6ff; }
}
body { margin: 1.5rem auto; max-width: 1200px; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.2rem; } p { color: var(--grey); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 13px; } svg text.small { font-size: 11px; }
svg text.grey { fill: var(--grey); }
.grid { stroke: var(--faint); } .axis { stroke: var(--grey); } .dot { fill: var(--grey); } .best { fill: var(--accent); }
.front { stroke: var(--accent); stroke-width: 2; fill: none; } .bar { fill: var(--accent); }
.rest { fill: var(--accent); opacity: 0.35; } .point { stroke: var(--paper); } .trial { fill: none; }
.trial:hover { stroke-width: 4; opacity: 1; }
)";

std::string pixels(double number) {
  return std::isfinite(number) ? short_number(std::round(number * 10) / 10, 6) : "0";
}

std::string label_text(std::string_view text) {
  return text_length(text) <= kLongestLabel ? std::string(text) : first_characters(text, kLongestLabel - 1) + "…";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(valid_utf8(text))) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string quality_colour(double share) {
  static constexpr std::array<std::array<double, 3>, 5> kScale{
      {{200, 55, 65}, {232, 140, 60}, {220, 190, 80}, {90, 165, 160}, {40, 100, 190}}};
  const double place = std::clamp(std::isnan(share) ? 0.0 : share, 0.0, 1.0) * (kScale.size() - 1);
  const auto left = std::min(static_cast<std::size_t>(place), kScale.size() - 2);
  char text[8];
  int rgb[3];
  for (std::size_t i = 0; i < 3; ++i)
    rgb[i] = static_cast<int>(std::lround(kScale[left][i] + (place - static_cast<double>(left)) *
                                                                (kScale[left + 1][i] - kScale[left][i]))) &
             255;
  std::snprintf(text, sizeof text, "#%02x%02x%02x", static_cast<unsigned>(rgb[0]), static_cast<unsigned>(rgb[1]),
                static_cast<unsigned>(rgb[2]));
  return text;
}

Axis Axis::around(const std::vector<double>& values, double from, double to) {
  Axis axis{0, 1, false, from, to};
  bool any = false;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    axis.low = any ? std::min(axis.low, value) : value;
    axis.high = any ? std::max(axis.high, value) : value;
    any = true;
  }
  axis.log = any && axis.low > 0 && axis.high / axis.low > 1000;
  if (axis.log) {
    const double margin = std::pow(axis.high / axis.low, 0.04);
    axis.low /= margin;
    axis.high = std::min(axis.high * margin, 1e308);
  } else {
    // Halves, because the difference of two huge numbers may overflow.
    double margin = (axis.high / 2 - axis.low / 2) * 0.08;
    if (!(margin > 0)) margin = any ? std::max(std::abs(axis.low) * 0.1, 1e-9) : 0;
    axis.low = std::max(axis.low - margin, -1e308);
    axis.high = std::min(axis.high + margin, 1e308);
  }
  return axis;
}

double Axis::at(double value) const {
  double share = 0.5;
  if (log)
    share = value > 0 ? std::log(value / low) / std::log(high / low) : 0;
  else if (high > low)
    share = (value / 2 - low / 2) / (high / 2 - low / 2);
  if (!std::isfinite(share)) share = 0.5;
  return from + std::clamp(share, 0.0, 1.0) * (to - from);
}

std::vector<double> Axis::ticks() const {
  std::vector<double> found;
  if (log) {
    const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
    const int step = std::max(1, (last - first) / 6 + ((last - first) % 6 != 0 ? 1 : 0));
    for (int power = first; power <= last; power += step) found.push_back(std::pow(10, power));
    if (found.size() >= 2) return found;
    return {low, high};
  }
  const double rough = (high / 6 - low / 6);
  if (!(rough > 0)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = rough / power > 5   ? 10 * power
                      : rough / power > 2 ? 5 * power
                      : rough / power > 1 ? 2 * power
                                          : power;
  if (!(step > 0) || !std::isfinite(step) || low + step == low) return {low, high};
  for (double i = std::ceil(low / step); i <= high / step && found.size() < 20; ++i) found.push_back(i * step);
  return found;
}

void Picture::hover_and_close(std::string_view element, std::string_view hover) {
  if (hover.empty())
    body_ += "/>\n";
  else
    body_.append("><title>").append(escaped(hover)).append("</title></").append(element).append(">\n");
}

void Picture::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  body_ += "<line x1='" + pixels(x1) + "' y1='" + pixels(y1) + "' x2='" + pixels(x2) + "' y2='" + pixels(y2) +
           "' class='" + escaped(css_class) + "'/>\n";
}

void Picture::path(const std::vector<std::pair<double, double>>& points, std::string_view look,
                   std::string_view hover) {
  body_ += "<polyline points='";
  for (const auto& [x, y] : points) body_ += pixels(x) + "," + pixels(y) + " ";
  body_.append("' ").append(look);
  hover_and_close("polyline", hover);
}

void Picture::circle(double x, double y, double radius, std::string_view look, std::string_view hover) {
  body_ += "<circle cx='" + pixels(x) + "' cy='" + pixels(y) + "' r='" + pixels(radius) + "' ";
  body_ += look;
  hover_and_close("circle", hover);
}

void Picture::box(double x, double y, double width, double height, std::string_view look, std::string_view hover) {
  body_ += "<rect x='" + pixels(x) + "' y='" + pixels(y) + "' width='" + pixels(width) + "' height='" + pixels(height) +
           "' ";
  body_ += look;
  hover_and_close("rect", hover);
}

void Picture::text(double x, double y, std::string_view anchor, std::string_view what, std::string_view css_class) {
  body_ += "<text x='" + pixels(x) + "' y='" + pixels(y) + "' text-anchor='" + std::string(anchor) + "' class='" +
           escaped(css_class) + "'>" + escaped(label_text(valid_utf8(what))) + "</text>\n";
}

void Picture::x_axis(const Axis& axis, double y, double top, std::string_view title) {
  for (const double tick : axis.ticks()) {
    line(axis.at(tick), top, axis.at(tick), y, "grid");
    text(axis.at(tick), y + 18, "middle", short_number(tick), "small");
  }
  line(axis.from, y, axis.to, y, "axis");
  text((axis.from + axis.to) / 2, y + 42, "middle", title);
}

void Picture::y_axis(const Axis& axis, double x, double right, std::string_view title) {
  for (const double tick : axis.ticks()) {
    line(x, axis.at(tick), right, axis.at(tick), "grid");
    text(x - 8, axis.at(tick) + 4, "end", short_number(tick), "small");
  }
  line(x, axis.from, x, axis.to, "axis");
  text(x, std::min(axis.from, axis.to) - 12, "start", title);
}

void Picture::colour_scale(double worst, double best, std::string_view title) {
  constexpr double kTop = 60, kSize = 380, kLeft = kWidth - 70;
  constexpr int kSteps = 38;
  for (int i = 0; i < kSteps; ++i)
    box(kLeft, kTop + kSize * i / kSteps, 14, kSize / kSteps + 0.5,
        "fill='" + quality_colour(1 - (i + 0.5) / kSteps) + "'");
  text(kLeft + 14, kTop - 12, "end", title);
  text(kLeft + 18, kTop + 10, "start", short_number(best, 3), "small");
  text(kLeft + 18, kTop + kSize, "start", short_number(worst, 3), "small");
}

std::string Picture::page(std::string_view title, std::string_view note) const {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" + escaped(title) + "</title>\n<style>";
  out += kStyle;
  out += "</style>\n</head>\n<body>\n<h1>" + escaped(title) + "</h1>\n";
  out += "<svg viewBox=\"0 0 960 540\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n" + body_ + "</svg>\n";
  if (!note.empty()) out += "<p>" + escaped(note) + "</p>\n";
  return out + "</body>\n</html>\n";
}

}  // namespace lockstep::tune
