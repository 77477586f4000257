# cmake -DFILES=a.spv,b.spv -DOUTPUT=table.cpp -P embed_spirv.cmake
# Writes the words of each file as an array, and a table sorted by name.
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(rows "")
set(names "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  if(name IN_LIST names)
    message(FATAL_ERROR "two shaders are named ${name}")
  endif()
  list(APPEND names ${name})
  set(file_of_${name} ${file})
endforeach()
list(SORT names)
foreach(name IN LISTS names)
  file(READ ${file_of_${name}} hex HEX)
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${hex}")
  string(APPEND arrays "constexpr std::uint32_t k_${name}[] = {${words}};\n")
  string(APPEND rows "    {\"${name}\", k_${name}},\n")
endforeach()
file(WRITE ${OUTPUT}
     "#include \"vulkan/shaders.h\"\n\nnamespace vkconv::vulkan {\nnamespace {\n${arrays}"
     "constexpr Shader kShaders[] = {\n    {\"\", {}},\n${rows}};\n}  // namespace\n\n"
     "std::span<const Shader> shaders() { return std::span(kShaders).subspan(1); }\n\n}  // namespace vkconv::vulkan\n")
