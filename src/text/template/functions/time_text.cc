// strftime in the C locale, without the C library's, whose locale is global.
#include <array>
#include <cstdio>

#include "core/text.h"
#include "text/template/functions/functions.h"
#include "text/template/values/fault.h"

namespace tarn::jinja {
namespace {

constexpr std::array<const char*, 7> kDays = {
    "Sunday",   "Monday", "Tuesday", "Wednesday",
    "Thursday", "Friday", "Saturday"};
constexpr std::array<const char*, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

bool Leap(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

// From 0.
int DayOfYear(const CalendarTime& time) {
  constexpr int kBefore[] = {0,   31,  59,  90,  120, 151,
                             181, 212, 243, 273, 304, 334};
  return kBefore[time.month - 1] + time.day - 1 +
         (time.month > 2 && Leap(time.year) ? 1 : 0);
}

// 0 is Sunday.
int DayOfWeek(const CalendarTime& time) {
  const int before = time.year - 1;
  return (before + before / 4 - before / 100 + before / 400 + DayOfYear(time) +
          1) %
         7;
}

std::string Padded(int number, int width, char flag, char fill = '0') {
  if (flag == '-') return std::to_string(number);
  std::string text = std::to_string(number);
  if (flag == '_') fill = ' ';
  if (flag == '0') fill = '0';
  while (static_cast<int>(text.size()) < width) text.insert(0, 1, fill);
  return text;
}

void CheckTime(const CalendarTime& time) {
  constexpr int kDaysOf[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool month = time.month >= 1 && time.month <= 12;
  const int days =
      month ? kDaysOf[time.month - 1] + (time.month == 2 && Leap(time.year))
            : 0;
  if (time.year < 1 || time.year > 9999 || time.day < 1 || time.day > days ||
      time.hour < 0 || time.hour > 23 || time.minute < 0 || time.minute > 59 ||
      time.second < 0 || time.second > 59) {
    Fail("a date and time of the years 1 to 9999 for strftime_now", "another");
  }
}

std::string TimePart(const CalendarTime& time, char directive, char flag) {
  const int week_day = DayOfWeek(time), year_day = DayOfYear(time);
  const auto upper = [&](std::string text) {
    if (flag == '^') {
      for (char& c : text) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
      }
    }
    return text;
  };
  const std::string day = kDays[static_cast<size_t>(week_day)];
  const std::string month = kMonths[static_cast<size_t>(time.month - 1)];
  const int hour = time.hour % 12 == 0 ? 12 : time.hour % 12;
  switch (directive) {
    case 'a':
      return upper(day.substr(0, 3));
    case 'A':
      return upper(day);
    case 'b':
    case 'h':
      return upper(month.substr(0, 3));
    case 'B':
      return upper(month);
    case 'c':
      return FormatTime(time, "%a %b %e %H:%M:%S %Y");
    case 'C':
      return Padded(time.year / 100, 2, flag);
    case 'd':
      return Padded(time.day, 2, flag);
    case 'D':
    case 'x':
      return FormatTime(time, "%m/%d/%y");
    case 'e':
      return Padded(time.day, 2, flag, ' ');
    case 'f':
      return "000000";
    case 'F':
      return FormatTime(time, "%Y-%m-%d");
    case 'H':
      return Padded(time.hour, 2, flag);
    case 'I':
      return Padded(hour, 2, flag);
    case 'j':
      return Padded(year_day + 1, 3, flag);
    case 'k':
      return Padded(time.hour, 2, flag, ' ');
    case 'l':
      return Padded(hour, 2, flag, ' ');
    case 'm':
      return Padded(time.month, 2, flag);
    case 'M':
      return Padded(time.minute, 2, flag);
    case 'n':
      return "\n";
    case 'p':
      return time.hour < 12 ? "AM" : "PM";
    case 'P':
      return time.hour < 12 ? "am" : "pm";
    case 'r':
      return FormatTime(time, "%I:%M:%S %p");
    case 'R':
      return FormatTime(time, "%H:%M");
    case 'S':
      return Padded(time.second, 2, flag);
    case 't':
      return "\t";
    case 'T':
    case 'X':
      return FormatTime(time, "%H:%M:%S");
    case 'u':
      return std::to_string(week_day == 0 ? 7 : week_day);
    case 'U':
      return Padded((year_day + 7 - week_day) / 7, 2, flag);
    case 'w':
      return std::to_string(week_day);
    case 'W':
      return Padded((year_day + 7 - (week_day + 6) % 7) / 7, 2, flag);
    case 'y':
      return Padded(time.year % 100, 2, flag);
    case 'Y':
      return std::to_string(time.year);
    case 'z':
    case 'Z':
      return "";  // a time without a zone
    case '%':
      return "%";
    default:
      Fail("a directive of strftime", Quoted(std::string{'%', directive}));
  }
}

}  // namespace

std::string FormatTime(const CalendarTime& time, std::string_view format) {
  CheckTime(time);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char flag = '\0';
    char directive = format[++i];
    constexpr std::string_view kFlags = "-_0^";
    if (kFlags.find(directive) != kFlags.npos && i + 1 < format.size()) {
      flag = directive;
      directive = format[++i];
    }
    out += TimePart(time, directive, flag);
  }
  return out;
}

}  // namespace tarn::jinja
