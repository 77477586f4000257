# Headers that take seconds to parse: once a target instead of once a file. With a compiler launcher not: ccache keeps
# what is compiled without them.
function(vkconv_precompile target)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
