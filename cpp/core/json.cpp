#include "core/json.h"

#include "core/error.h"
#include "core/number_text.h"

namespace vkconv {

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Json document() {
    Json value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("something follows the value");
    return value;
  }

 private:
  static constexpr int kMaxDepth = 16;

  [[noreturn]] void fail(const std::string& why) const {
    throw ProblemError("not JSON at offset " + std::to_string(at_) + ": " + why);
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("wanted '") + c + "'");
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parse_value(int depth) {
    if (depth > kMaxDepth) fail("too deep");
    skip_space();
    Json json;
    if (take('{'))
      json.value_ = parse_object(depth);
    else if (take('['))
      json.value_ = parse_array(depth);
    else if (at_ < text_.size() && text_[at_] == '"')
      json.value_ = parse_string();
    else if (take_word("true"))
      json.value_ = true;
    else if (take_word("false"))
      json.value_ = false;
    else if (!take_word("null"))
      json.value_ = parse_number();
    return json;
  }

  Json::Object parse_object(int depth) {
    Json::Object object;
    if (take('}')) return object;
    do {
      skip_space();
      std::string name = parse_string();
      expect(':');
      object.emplace_back(std::move(name), parse_value(depth + 1));
    } while (take(','));
    expect('}');
    return object;
  }

  Json::Array parse_array(int depth) {
    Json::Array array;
    if (take(']')) return array;
    do array.push_back(parse_value(depth + 1));
    while (take(','));
    expect(']');
    return array;
  }

  std::string parse_string() {
    expect('"');
    std::string s;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const bool escape = text_[at_] == '\\';
      if (escape && ++at_ == text_.size()) break;
      s += escape ? escaped(text_[at_]) : text_[at_];
    }
    if (at_ == text_.size()) fail("a string does not end");
    ++at_;
    return s;
  }
  char escaped(char c) const {
    constexpr std::string_view codes = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const std::size_t i = codes.find(c);
    if (i == std::string_view::npos) fail("an escape that is not known");
    return meant[i];
  }

  Json::Number parse_number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos) ++at_;
    Json::Number number{std::string(text_.substr(begin, at_ - begin))};
    if (!number_of<double>(number.text)) fail("wanted a value");
    return number;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

namespace {

template <class T, class Value>
const T& get(const Value& value, std::string_view what, const char* wanted) {
  if (const T* v = std::get_if<T>(&value)) return *v;
  throw ProblemError(std::string(what) + " is not " + wanted);
}

}  // namespace

Json Json::parse(std::string_view text) { return JsonParser(text).document(); }

bool Json::boolean(std::string_view what) const { return get<bool>(value_, what, "true or false"); }
double Json::number(std::string_view what) const {
  return *number_of<double>(get<Number>(value_, what, "a number").text);
}
std::uint64_t Json::integer(std::string_view what) const {
  const std::string& text = get<Number>(value_, what, "a number").text;
  if (const auto v = number_of<std::uint64_t>(text)) return *v;
  throw ProblemError(std::string(what) + " is " + text + ", wanted an integer of at most 64 bits");
}
const std::string& Json::text(std::string_view what) const { return get<std::string>(value_, what, "a string"); }
const Json::Array& Json::array(std::string_view what) const { return get<Array>(value_, what, "an array"); }
const Json::Object& Json::object(std::string_view what) const { return get<Object>(value_, what, "an object"); }

std::string quoted(std::string_view text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return s + '"';
}

}  // namespace vkconv
