#include "bindings/devices.h"

#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>

#include <cstdlib>

#include "bindings/vulkan_devices.h"
#include "bindings/without_gil.h"
#include "core/number_text.h"
#include "cpu/backend.h"
#include "cpu/processor.h"
#include "cpu/thread_pool.h"

namespace vkconv::bindings {
namespace {

namespace py = pybind11;

constexpr std::string_view kCpu = "cpu", kVulkan = "vulkan", kVulkanPrefix = "vulkan:";

// Resolved names of the devices of the `with` blocks around a caller, a tuple: of the context, which threads and tasks
// of asyncio have each of their own. The variable is never destroyed. Its creation may let another thread run, which a
// static of the language would make wait with the interpreter's lock held.
PyObject* blocks_variable() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> variable;
  const auto create = [] {
    PyObject* const made = PyContextVar_New("vkconv.device", nullptr);
    if (!made) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(made);
  };
  return variable.call_once_and_store_result(create).get_stored().ptr();
}
py::tuple blocks() {
  PyObject* names = nullptr;
  if (PyContextVar_Get(blocks_variable(), nullptr, &names) < 0) throw py::error_already_set();
  return names ? py::reinterpret_steal<py::tuple>(names) : py::tuple();
}
void set_blocks(const py::object& names) {
  if (!py::reinterpret_steal<py::object>(PyContextVar_Set(blocks_variable(), names.ptr())))
    throw py::error_already_set();
}

DeviceEntry cpu_entry() {
  const cpu::Traits t = cpu::host_traits();
  const std::string processor = cpu::processor_name();
  const auto kib = [](std::size_t bytes) { return std::to_string(bytes >> 10) + " KiB"; };
  return {std::string(kCpu),
          "cpu",
          processor.empty() ? t.isa : processor,
          "",
          {{"instruction_set", t.isa},
           {"threads", std::to_string(cpu::num_threads())},
           {"bf16_dot", t.bf16_dot ? "yes" : "no"},
           {"bf16_tiles", t.bf16_tiles ? "yes" : "no"},
           {"l1", kib(t.l1_bytes)},
           {"l2", kib(t.l2_bytes)},
           {"l3", kib(t.l3_bytes)}}};
}

// The index of "vulkan:3", or -1.
int vulkan_index(std::string_view name) {
  if (!name.starts_with(kVulkanPrefix)) return -1;
  return number_of<int>(name.substr(kVulkanPrefix.size())).value_or(-1);
}

}  // namespace

DeviceTable& DeviceTable::instance() {
  // Never destroyed: prepared objects may outlive static destructors.
  static DeviceTable& table = *new DeviceTable;
  return table;
}

const std::vector<DeviceEntry>& DeviceTable::vulkan() {
  std::call_once(enumerated_, [this] {
    VulkanDevices found = vulkan_devices();
    vulkan_ = std::move(found.entries);
    if (vulkan_.empty()) no_vulkan_reason_ = std::move(found.reason);
  });
  return vulkan_;
}

std::vector<DeviceEntry> DeviceTable::entries() {
  std::vector<DeviceEntry> all{cpu_entry()};
  all.insert(all.end(), vulkan().begin(), vulkan().end());
  return all;
}

const std::string& DeviceTable::no_vulkan_reason() {
  vulkan();
  return no_vulkan_reason_;
}

std::string DeviceTable::resolve(std::string_view name, const char* source) {
  if (name == kCpu) return std::string(kCpu);
  const int index = name == kVulkan ? 0 : vulkan_index(name);
  if (index < 0)
    throw ProblemError(std::string(source) + " is '" + std::string(name) +
                       "', wanted 'cpu', 'vulkan' or 'vulkan:0', ...");
  const std::size_t count = vulkan().size();
  if (count == 0) throw DeviceError("device '" + std::string(name) + "' is not here: " + no_vulkan_reason_);
  if (static_cast<std::size_t>(index) >= count)
    throw DeviceError("device '" + std::string(name) + "' is not here: this machine has " + std::to_string(count) +
                      " Vulkan device" + (count == 1 ? "" : "s"));
  const DeviceEntry& entry = vulkan()[static_cast<std::size_t>(index)];
  if (!entry.unusable.empty()) throw DeviceError("device '" + std::string(name) + "' is unusable: " + entry.unusable);
  return entry.name;
}

std::string DeviceTable::default_name() {
  {
    std::lock_guard lock(mutex_);
    if (!default_.empty()) return default_;
  }
  const char* from_environment = std::getenv("VKCONV_DEVICE");
  const bool given = from_environment && *from_environment;
  const auto is_gpu = [](const DeviceEntry& d) {
    return d.unusable.empty() && (d.kind == "discrete" || d.kind == "integrated");
  };
  std::string chosen(kCpu);
  if (given)
    chosen = resolve(from_environment, "VKCONV_DEVICE");
  else if (!vulkan().empty() && is_gpu(vulkan().front()))
    chosen = vulkan().front().name;
  std::lock_guard lock(mutex_);
  if (default_.empty()) default_ = std::move(chosen);
  return default_;
}

int DeviceTable::index_of(std::string_view name) { return vulkan_index(resolve(name)); }

void DeviceTable::set_default(std::string_view name) {
  std::string resolved = resolve(name);
  std::lock_guard lock(mutex_);
  default_ = std::move(resolved);
}

void DeviceTable::push(std::string_view name) { set_blocks(blocks() + py::make_tuple(resolve(name))); }
void DeviceTable::pop() {
  if (const py::tuple names = blocks(); !names.empty()) set_blocks(names[py::slice(0, -1, 1)]);
}

std::shared_ptr<Backend> DeviceTable::find(const std::string& name) {
  std::lock_guard lock(mutex_);
  for (const OpenDevice& d : opened_)
    if (d.name == name) return d.backend;
  return nullptr;
}

OpenDevice DeviceTable::open(std::string_view name) {
  std::string wanted(name);
  if (const py::tuple names = wanted.empty() ? blocks() : py::tuple(); !names.empty())
    wanted = names[names.size() - 1].cast<std::string>();
  if (wanted.empty()) wanted = default_name();
  if (auto backend = find(wanted)) return {std::move(wanted), std::move(backend)};
  wanted = resolve(wanted);
  if (auto backend = find(wanted)) return {std::move(wanted), std::move(backend)};
  // Opening takes long and calls no Python; another thread may wait here without the interpreter's lock.
  const WithoutGil release;
  std::lock_guard opening(opening_);
  if (auto backend = find(wanted)) return {std::move(wanted), std::move(backend)};
  std::shared_ptr<Backend> made = wanted == kCpu ? cpu::make_backend() : make_vulkan_backend(vulkan_index(wanted));
  std::lock_guard lock(mutex_);
  made->set_cache_capacity(cache_capacity_);
  if (const auto found = preferences_.find(wanted); found != preferences_.end()) made->set_preferences(found->second);
  opened_.push_back({wanted, made});
  return {std::move(wanted), std::move(made)};
}

std::vector<OpenDevice> DeviceTable::opened() {
  std::lock_guard lock(mutex_);
  return opened_;
}

std::string DeviceTable::identity(std::string_view name) {
  const int index = index_of(name);
  const DeviceEntry entry = index < 0 ? cpu_entry() : vulkan()[static_cast<std::size_t>(index)];
  std::string text = std::string(index < 0 ? kCpu : kVulkan) + " " + entry.description;
  for (const auto& [property, value] : entry.properties)
    if (index < 0 || property == "driver") text += ", " + property + " " + value;
  return text;
}

void DeviceTable::prefer(std::string_view name, const Preferences& preferences) {
  const std::string resolved = resolve(name);
  std::lock_guard lock(mutex_);
  Preferences& all = preferences_[resolved];
  for (const auto& [problem, algorithm] : preferences) all[problem] = algorithm;
  for (const OpenDevice& d : opened_)
    if (d.name == resolved) d.backend->set_preferences(all);
}

void DeviceTable::clear_preferences() {
  std::lock_guard lock(mutex_);
  preferences_.clear();
  for (const OpenDevice& d : opened_) d.backend->set_preferences({});
}

void DeviceTable::set_cache_capacity(std::size_t capacity) {
  std::lock_guard lock(mutex_);
  cache_capacity_ = capacity;
  for (const OpenDevice& d : opened_) d.backend->set_cache_capacity(capacity);
}

}  // namespace vkconv::bindings
