# The described devices, as one C++ table behind cpp/vulkan/description.h.
file(GLOB VKCONV_DESCRIPTIONS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/vulkan/devices/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${VKCONV_DESCRIPTIONS})
set(rows "")
foreach(file IN LISTS VKCONV_DESCRIPTIONS)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} json)
  string(APPEND rows "    {\"${name}\", R\"json(${json})json\"},\n")
endforeach()
set(VKCONV_DESCRIPTION_TABLE ${CMAKE_CURRENT_BINARY_DIR}/description_table.cpp)
string(CONCAT table "#include \"vulkan/description.h\"\n\nnamespace vkconv::vulkan {\nnamespace {\n\n"
              "constexpr Description kDescriptions[] = {\n${rows}};\n\n}  // namespace\n\n"
              "std::span<const Description> descriptions() { return kDescriptions; }\n\n"
              "}  // namespace vkconv::vulkan\n")
file(GENERATE OUTPUT ${VKCONV_DESCRIPTION_TABLE} CONTENT "${table}")
target_sources(vkconv PRIVATE ${VKCONV_DESCRIPTION_TABLE})
