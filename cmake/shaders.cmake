# The SPIR-V files checked in beside the algorithms, as one C++ table behind cpp/vulkan/shaders.h.
file(GLOB_RECURSE VKCONV_SPIRV CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/*.spv)
set(VKCONV_SHADER_TABLE ${CMAKE_CURRENT_BINARY_DIR}/shader_table.cpp)
string(REPLACE ";" "," VKCONV_SPIRV_ARGUMENT "${VKCONV_SPIRV}")
add_custom_command(
  OUTPUT ${VKCONV_SHADER_TABLE}
  COMMAND ${CMAKE_COMMAND} -DFILES=${VKCONV_SPIRV_ARGUMENT} -DOUTPUT=${VKCONV_SHADER_TABLE}
          -P ${PROJECT_SOURCE_DIR}/cmake/embed_spirv.cmake
  DEPENDS ${VKCONV_SPIRV} ${PROJECT_SOURCE_DIR}/cmake/embed_spirv.cmake
  COMMENT "Embedding SPIR-V"
  VERBATIM)
target_sources(vkconv PRIVATE ${VKCONV_SHADER_TABLE})
