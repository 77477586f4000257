// Devices as text, so that plans are made and tested for devices that are not there. The library holds descriptions of
// some (cpp/vulkan/devices/*.json); a real device that one of them describes is planned for with its measured rates.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/backend.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

// JSON with every field of Traits. Reading takes what is absent at its default and refuses, with ProblemError, what it
// does not know and limits that no Vulkan device has.
std::string to_json(const Traits& traits);
Traits traits_from_json(std::string_view json);

struct Description {
  std::string_view name;  // "h200": the file's name
  std::string_view json;
};
std::span<const Description> descriptions();

// The rates measured on a described device of the same vendor and device id; estimates by type elsewhere.
Rates known_rates(const Traits& traits);

// Plans and explains as the described device would; executing throws DeviceError.
std::unique_ptr<Backend> make_planning_backend(Traits traits);

}  // namespace vkconv::vulkan
