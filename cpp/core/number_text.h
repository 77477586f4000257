// Text that is a number, read the same whatever the locale.
#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace vkconv {

// The number that all of the text is; nothing where it is none, has something beside one, or is out of T's range.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace vkconv
