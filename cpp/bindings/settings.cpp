#include "bindings/settings.h"

#include <dlfcn.h>
#include <pybind11/stl.h>

#include "bindings/call.h"
#include "bindings/description.h"
#include "bindings/vulkan_devices.h"
#include "bindings/without_gil.h"
#include "core/error.h"
#include "cpu/memory.h"
#include "cpu/thread_pool.h"
#include "cpu/thread_team.h"

namespace vkconv::bindings {
namespace {

// None: the device a call would use.
int device_index(py::handle device) {
  DeviceTable& table = DeviceTable::instance();
  return table.index_of(device.is_none() ? table.open({}).name : parse_word(device, "device"));
}

// Work in flight at the end of the process would meet a driver that is being unloaded.
void wait_at_exit() {
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    const WithoutGil release;
    ExitGate::instance().close();
    for (const OpenDevice& d : DeviceTable::instance().opened()) try {
        d.backend->synchronize();
      } catch (const Error&) {  // nobody is left to be told
      }
  }));
}

py::list device_list() {
  py::list list;
  for (const DeviceEntry& e : DeviceTable::instance().entries()) {
    py::dict properties;
    for (const auto& [name, value] : e.properties) properties[py::str(name)] = value;
    list.append(py::make_tuple(e.name, e.kind, e.description, e.unusable, properties));
  }
  return list;
}

void bind_devices(py::module_& m) {
  m.def("devices", device_list);
  m.def("no_vulkan_reason", [] { return DeviceTable::instance().no_vulkan_reason(); });
  m.def("default_device", [] { return DeviceTable::instance().default_name(); });
  m.def("current_device", [] { return DeviceTable::instance().open({}).name; });
  m.def("set_default_device",
        [](py::handle name) { DeviceTable::instance().set_default(required_word(name, "name")); });
  m.def("push_device", [](py::handle name) { DeviceTable::instance().push(required_word(name, "name")); });
  m.def("pop_device", [] { DeviceTable::instance().pop(); });
  m.def("take_validation_messages", &take_validation_messages);
  m.def("algorithms", [](py::handle device) { return open_device(device).backend->algorithms(); });
}

void bind_plan_cache(py::module_& m) {
  m.def("plan_cache_info", [](py::handle device) {
    const CacheInfo info = open_device(device).backend->cache_info();
    return py::make_tuple(info.hits, info.misses, info.size, info.capacity);
  });
  m.def("plan_cache_clear", [] {
    for (const OpenDevice& d : DeviceTable::instance().opened()) d.backend->clear_cache();
  });
  m.def("set_plan_cache_capacity", [](py::handle n) {
    DeviceTable::instance().set_cache_capacity(static_cast<std::size_t>(parse_int(n, "capacity", 0)));
  });
}

// {problem text: algorithm}
Preferences parse_preferences(const py::dict& choices) {
  Preferences preferences;
  for (const auto& [text, algorithm] : choices) {
    preferences[planned_form(parse_problem(required_word(text, "problem string")))] =
        required_word(algorithm, "algorithm");
  }
  return preferences;
}

void bind_tuning(py::module_& m) {
  m.def("device_identity", [](const std::string& name) { return DeviceTable::instance().identity(name); });
  m.def("prefer", [](const std::string& device, const py::dict& choices) {
    DeviceTable::instance().prefer(device, parse_preferences(choices));
  });
  m.def("clear_preferences", [] { DeviceTable::instance().clear_preferences(); });
  m.def("noted_problems", &noted_problems);
}

// The OpenMP runtime at `library`, which this process has loaded already, runs the jobs from now on.
bool share_threads_of(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return false;
  const auto team = reinterpret_cast<cpu::Team>(dlsym(handle, "GOMP_parallel"));
  if (team) cpu::set_team(team);
  return team != nullptr;
}

void bind_threads_and_memory(py::module_& m) {
  m.def("share_threads_of", &share_threads_of);
  m.def("set_num_threads", [](py::handle n) {
    const std::int64_t threads = parse_int(n, "n", 1);
    if (threads > cpu::kMaxThreads)
      throw py::value_error("n is " + std::to_string(threads) + ", wanted at most " + std::to_string(cpu::kMaxThreads));
    cpu::set_num_threads(static_cast<int>(threads));
  });
  m.def("num_threads", &cpu::num_threads);
  m.def("memory_info", [](py::handle device) {
    const int index = device_index(device);
    DeviceMemory memory;
    if (index >= 0) {
      const WithoutGil release;
      memory = vulkan_memory(index);
    } else {
      const cpu::PoolInfo info = cpu::pool_info();
      memory = {info.used_bytes, info.peak_used_bytes, info.cached_bytes, 0, cpu::host_memory_bytes()};
    }
    return py::make_tuple(memory.used_bytes, memory.peak_used_bytes, memory.cached_bytes, memory.staging_bytes,
                          memory.total_bytes);
  });
  m.def("reset_memory_peak", [](py::handle device) {
    const int index = device_index(device);
    return index >= 0 ? reset_vulkan_memory_peak(index) : cpu::reset_pool_peak();
  });
  m.def("trim_memory", [](py::handle device) {
    const int index = device_index(device);
    return index >= 0 ? trim_vulkan_memory(index) : cpu::trim_pool();
  });
}

void bind_precision(py::module_& m) {
  m.def("default_precision", [] { return std::string(to_string(default_precision())); });
  m.def("set_default_precision", [](py::handle precision) {
    if (precision.is_none()) throw py::type_error("precision must be a string, got None");
    set_default_precision(parse_precision(precision));
  });
}

// (problem, device, plan or None, workspace bytes, why no plan, [(name, seconds, reason, preferred), ...])
py::tuple explain_request(const PlanRequest& request, const OpenDevice& device) {
  py::list rows;
  for (const Candidate& c : device.backend->explain(request.problem, request.workspace_limit_bytes))
    rows.append(py::make_tuple(c.name, c.reason.empty() ? py::cast(c.seconds) : py::none(), c.reason, c.preferred));
  py::object plan = py::none();
  std::size_t workspace_bytes = 0;
  std::string reason;
  try {
    PlanSummary summary = device.backend->summary(request);
    plan = py::cast(summary.tree);
    workspace_bytes = summary.workspace_bytes;
  } catch (const ProblemError& e) {
    reason = e.what();
  }
  return py::make_tuple(to_string(request.problem), device.name, plan, workspace_bytes, reason, rows);
}

void bind_explain(py::module_& m) {
  m.def("explain_call", [](const py::function& op, const py::args& args, const py::kwargs& kwargs) {
    Captured captured;
    {
      CaptureScope scope(captured);
      op(*args, **kwargs);
    }
    if (!captured.filled) throw py::type_error("op must be one of the operations of vkconv or a prepared convolution");
    return explain_request(captured.request, captured.device);
  });
  m.def("explain_problem",
        [](py::handle text, py::handle precision, py::handle device, py::handle algorithm, py::handle workspace_limit) {
          const Options options = parse_options({precision, device, algorithm, workspace_limit});
          PlanRequest request{planned_form(parse_problem(required_word(text, "problem string"))), options.algorithm,
                              options.workspace_limit_bytes};
          if (!precision.is_none()) request.problem.precision = options.precision;
          return explain_request(request, options.device);
        });
}

py::dict build_info() {
  py::dict info;
  info["version"] = VKCONV_VERSION;
  info["compiler"] = VKCONV_COMPILER;
  info["build_type"] = VKCONV_BUILD_TYPE;
  info["vulkan"] = py::bool_(VKCONV_VULKAN != 0);
  info["pybind11"] = std::to_string(PYBIND11_VERSION_MAJOR) + "." + std::to_string(PYBIND11_VERSION_MINOR);
  return info;
}

}  // namespace

void bind_settings(py::module_& m) {
  bind_devices(m);
  bind_plan_cache(m);
  bind_threads_and_memory(m);
  bind_precision(m);
  bind_tuning(m);
  bind_explain(m);
  m.def("build_info", build_info);
  wait_at_exit();
}

}  // namespace vkconv::bindings
