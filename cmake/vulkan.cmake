# The Vulkan device: headers at build time, the loader at run time.
target_compile_definitions(vkconv PUBLIC VKCONV_VULKAN=$<BOOL:${VKCONV_VULKAN}>)
if(NOT VKCONV_VULKAN)
  return()
endif()
find_path(VKCONV_VULKAN_HEADERS vulkan/vulkan_raii.hpp)
if(NOT VKCONV_VULKAN_HEADERS)
  message(FATAL_ERROR "The Vulkan C++ headers (vulkan/vulkan_raii.hpp) were not found. "
                      "Install them (Debian and Ubuntu: libvulkan-dev; Fedora: vulkan-headers), "
                      "or build without the Vulkan device: -DVKCONV_VULKAN=OFF")
endif()
target_include_directories(vkconv SYSTEM PRIVATE ${VKCONV_VULKAN_HEADERS})
target_link_libraries(vkconv PRIVATE ${CMAKE_DL_LIBS})
