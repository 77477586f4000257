// JSON (RFC 8259) as far as descriptions of devices need it: numbers are kept as written, so that 64-bit integers
// survive; \u escapes are left out.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace vkconv {

class Json {
 public:
  struct Number {
    std::string text;
  };
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order written

  static Json parse(std::string_view text);  // throws ProblemError with the offset of the mistake

  // Each throws ProblemError, naming `what`, when the value is of another kind or out of range.
  bool boolean(std::string_view what) const;
  double number(std::string_view what) const;
  std::uint64_t integer(std::string_view what) const;
  const std::string& text(std::string_view what) const;
  const Array& array(std::string_view what) const;
  const Object& object(std::string_view what) const;

 private:
  friend class JsonParser;
  std::variant<std::nullptr_t, bool, Number, std::string, Array, Object> value_;
};

std::string quoted(std::string_view text);

}  // namespace vkconv
