#include "vulkan/description.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <concepts>
#include <iterator>
#include <type_traits>

#include "algorithms/registry_vulkan.h"
#include "core/json.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {
namespace {

// ---- the fields: field(name, member) for each

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

template <Is<Features> T, class F>
void each_field(T& f, F&& field) {
  field("float16", f.float16);
  field("float64", f.float64);
  field("int16", f.int16);
  field("bfloat16", f.bfloat16);
  field("subgroup_size_control", f.subgroup_size_control);
  field("full_subgroups", f.full_subgroups);
  field("subgroup_arithmetic", f.subgroup_arithmetic);
  field("subgroup_shuffle", f.subgroup_shuffle);
  field("memory_model", f.memory_model);
  field("external_memory_host", f.external_memory_host);
  field("memory_budget", f.memory_budget);
}

template <Is<Limits> T, class F>
void each_field(T& l, F&& field) {
  field("shared_memory_bytes", l.shared_memory_bytes);
  field("workgroup_invocations", l.workgroup_invocations);
  field("workgroup_size", l.workgroup_size);
  field("workgroup_count", l.workgroup_count);
  field("subgroup_size", l.subgroup_size);
  field("min_subgroup_size", l.min_subgroup_size);
  field("max_subgroup_size", l.max_subgroup_size);
  field("storage_buffer_range_bytes", l.storage_buffer_range_bytes);
  field("allocation_bytes", l.allocation_bytes);
  field("memory_bytes", l.memory_bytes);
  field("host_import_alignment_bytes", l.host_import_alignment_bytes);
}

template <Is<Rates> T, class F>
void each_field(T& r, F&& field) {
  field("f32_flops_per_second", r.f32_flops_per_second);
  field("f16_flops_per_second", r.f16_flops_per_second);
  field("f64_flops_per_second", r.f64_flops_per_second);
  field("memory_bytes_per_second", r.memory_bytes_per_second);
  field("launch_seconds", r.launch_seconds);
}

template <Is<CooperativeMatrix> T, class F>
void each_field(T& m, F&& field) {
  field("m", m.m);
  field("n", m.n);
  field("k", m.k);
  field("operand", m.operand);
  field("sum", m.sum);
}

template <Is<Traits> T, class F>
void each_field(T& t, F&& field) {
  field("name", t.name);
  field("driver", t.driver);
  field("type", t.type);
  field("vendor_id", t.vendor_id);
  field("device_id", t.device_id);
  field("api_version", t.api_version);
  field("unified_memory", t.unified_memory);
  field("timestamp_seconds", t.timestamp_seconds);
  field("max_operand_elements", t.max_operand_elements);
  field("features", t.features);
  field("limits", t.limits);
  field("rates", t.rates);
  field("cooperative_matrices", t.cooperative_matrices);
}

template <class T>
concept Described = requires(T& t) {
  each_field(t, [](const char*, auto&) {});
};

// ---- writing

struct Writer {
  std::string text;
  int depth = 0;

  void write(bool v) { text += v ? "true" : "false"; }
  void write(double v) {
    char digits[32];
    text.append(digits, std::to_chars(digits, std::end(digits), v, std::chars_format::general, 9).ptr);
  }
  template <std::integral T>
  void write(T v) {
    text += std::to_string(v);
  }
  void write(const std::string& v) { text += quoted(v); }
  void write(DType v) { text += quoted(to_string(v)); }
  void write(DeviceType v) { text += quoted(to_string(v)); }
  void write(const std::array<std::uint32_t, 3>& v) {
    text += "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + "]";
  }
  void write(const std::vector<CooperativeMatrix>& v) {
    text += "[";
    for (const CooperativeMatrix& m : v) {
      text += &m == v.data() ? "\n    {" : ",\n    {";
      std::size_t begin = text.size();
      each_field(m, [&](const char* name, const auto& member) {
        text += (text.size() == begin ? "\"" : ", \"") + std::string(name) + "\": ";
        write(member);
      });
      text += "}";
    }
    text += v.empty() ? "]" : "\n  ]";
  }
  template <Described T>
  void write(const T& v) {
    const std::string indent(2 * static_cast<std::size_t>(++depth), ' ');
    bool first = true;
    text += "{";
    each_field(v, [&](const char* name, const auto& member) {
      text += (first ? "\n" : ",\n") + indent + quoted(name) + ": ";
      first = false;
      write(member);
    });
    --depth;
    text += "\n" + indent.substr(2) + "}";
  }
};

// ---- reading

void read(const Json& j, const char* what, bool& v) { v = j.boolean(what); }
void read(const Json& j, const char* what, double& v) {
  v = j.number(what);
  if (!(v >= 0)) throw ProblemError(std::string(what) + " is negative");
}
void read(const Json& j, const char* what, std::string& v) { v = j.text(what); }
template <std::integral T>
void read(const Json& j, const char* what, T& v) {
  const std::uint64_t wide = j.integer(what);
  v = static_cast<T>(wide);
  if (v < 0 || static_cast<std::uint64_t>(v) != wide) throw ProblemError(std::string(what) + " is too large");
}
template <class Enum>
void read_word(const Json& j, const char* what, std::initializer_list<Enum> values, Enum& v) {
  for (const Enum value : values)
    if (j.text(what) == to_string(value)) {
      v = value;
      return;
    }
  throw ProblemError(std::string(what) + " is " + quoted(j.text(what)) + ", which is not known");
}
void read(const Json& j, const char* what, DType& v) {
  read_word(j, what, {DType::f32, DType::f16, DType::bf16, DType::f64}, v);
}
void read(const Json& j, const char* what, DeviceType& v) {
  using enum DeviceType;
  read_word(j, what, {discrete, integrated, virtual_gpu, software, other}, v);
}
void read(const Json& j, const char* what, std::array<std::uint32_t, 3>& v) {
  const Json::Array& items = j.array(what);
  if (items.size() != v.size()) throw ProblemError(std::string(what) + " wants three numbers");
  for (std::size_t i = 0; i < v.size(); ++i) read(items[i], what, v[i]);
}

void read(const Json& j, const char* what, std::vector<CooperativeMatrix>& v);

template <Described T>
void read(const Json& j, const char* what, T& v) {
  for (const auto& [name, value] : j.object(what)) {
    bool known = false;
    each_field(v, [&, &name = name, &value = value](const char* field, auto& member) {
      if (name != field) return;
      known = true;
      read(value, field, member);
    });
    if (!known) throw ProblemError(std::string(what) + " has no field " + quoted(name));
  }
}

void read(const Json& j, const char* what, std::vector<CooperativeMatrix>& v) {
  v.clear();
  for (const Json& item : j.array(what)) read(item, what, v.emplace_back());
}

void require_at_least(const std::string& what, std::uint64_t value, std::uint64_t least) {
  if (value < least)
    throw ProblemError(what + " is " + std::to_string(value) + ", wanted at least " + std::to_string(least));
}

// What tiles are chosen by: at least what Vulkan requires of every device, which the defaults are.
void validate(const Traits& t) {
  const Limits &l = t.limits, required;
  require_at_least("shared_memory_bytes", l.shared_memory_bytes, required.shared_memory_bytes);
  require_at_least("workgroup_invocations", l.workgroup_invocations, required.workgroup_invocations);
  for (std::size_t a = 0; a < 3; ++a) {
    require_at_least("workgroup_size", l.workgroup_size[a], required.workgroup_size[a]);
    require_at_least("workgroup_count", l.workgroup_count[a], required.workgroup_count[a]);
  }
  if (!std::has_single_bit(l.subgroup_size))
    throw ProblemError("subgroup_size is " + std::to_string(l.subgroup_size) + ", wanted a power of two");
  for (const CooperativeMatrix& m : t.cooperative_matrices)
    require_at_least("an extent of a cooperative matrix", std::min({m.m, m.n, m.k}), 1);
}

class PlanningOnly final : public PlanningBackend<Device> {
 public:
  using PlanningBackend::PlanningBackend;

  void execute(const PlanRequest&, const Execution&) override { refuse(); }
  std::shared_ptr<PreparedConv> prepare(const ConvProblem&, const HostOperands&) override { refuse(); }
  std::shared_ptr<ArrayMemory> allocate(std::size_t) override { refuse(); }
  std::shared_ptr<ArrayMemory> upload(const StridedArray&) override { refuse(); }
  void download(const ArrayMemory&, const StridedArray&, const StridedArray&) override { refuse(); }
  void synchronize() override {}
  void copy(const StridedArray&, const StridedArray&, const Residents&) override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    throw DeviceError("'" + planner_.traits().name + "' is a description of a device: it plans and computes nothing");
  }
};

}  // namespace

std::string to_json(const Traits& traits) {
  Writer writer;
  writer.write(traits);
  return writer.text + "\n";
}

Traits traits_from_json(std::string_view json) {
  Traits traits;
  read(Json::parse(json), "a description", traits);
  validate(traits);
  return traits;
}

Rates known_rates(const Traits& traits) {
  static const std::vector<Traits>& known = *new std::vector<Traits>([] {
    std::vector<Traits> all;
    for (const Description& d : descriptions()) all.push_back(traits_from_json(d.json));
    return all;
  }());
  for (const Traits& t : known)
    if (t.vendor_id == traits.vendor_id && t.device_id == traits.device_id && t.type == traits.type) return t.rates;
  return estimated_rates(traits.type);
}

std::unique_ptr<Backend> make_planning_backend(Traits traits) {
  return std::make_unique<PlanningOnly>(std::move(traits));
}

}  // namespace vkconv::vulkan
