# The extension module vkconv._core. pybind11 comes from the build environment of pip, the system, or the interpreter
# that CMake found.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 2.13 CONFIG QUIET)
if(NOT pybind11_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir OUTPUT_VARIABLE pybind11_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE VKCONV_PYBIND11_MISSING)
  if(VKCONV_PYBIND11_MISSING)
    message(FATAL_ERROR "pybind11 not found: pip install pybind11, apt-get install pybind11-dev, "
                        "or configure with -DVKCONV_PYTHON=OFF")
  endif()
  find_package(pybind11 2.13 CONFIG REQUIRED)
endif()

file(GLOB VKCONV_BINDING_SOURCES CONFIGURE_DEPENDS cpp/bindings/*.cpp)
# NO_EXTRAS: link-time optimisation of the thin bindings costs build time and gains nothing.
pybind11_add_module(_core MODULE NO_EXTRAS ${VKCONV_BINDING_SOURCES})
target_link_libraries(_core PRIVATE vkconv vkconv_flags)
vkconv_precompile(_core <pybind11/pybind11.h>)
target_compile_definitions(_core PRIVATE VKCONV_VERSION="${PROJECT_VERSION}"
                                         VKCONV_VULKAN=$<BOOL:${VKCONV_VULKAN}>
                                         VKCONV_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
                                         VKCONV_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
if(CMAKE_BUILD_TYPE MATCHES "^(Release|MinSizeRel)$")
  pybind11_strip(_core)
endif()
install(TARGETS _core LIBRARY DESTINATION vkconv)
if(VKCONV_HIGHWAY_TYPE STREQUAL "SHARED_LIBRARY")  # beside the module: a wheel runs where this package is not installed
  set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(IMPORTED_RUNTIME_ARTIFACTS hwy::hwy LIBRARY DESTINATION vkconv)
endif()
