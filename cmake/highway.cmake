# Google Highway: the system's if it has one, else a pinned release.
find_package(hwy 1.0.3 QUIET CONFIG)
if(hwy_FOUND)
  get_target_property(VKCONV_HIGHWAY_TYPE hwy::hwy TYPE)
else()
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy>=1.0.3)
    if(HWY_FOUND)
      add_library(hwy::hwy ALIAS PkgConfig::HWY)
      set(hwy_FOUND TRUE)
    endif()
  endif()
endif()
if(NOT hwy_FOUND)
  message(STATUS "Highway not found (Debian: libhwy-dev); fetching release 1.0.7")
  include(FetchContent)
  if(POLICY CMP0135)
    cmake_policy(SET CMP0135 NEW)  # what is extracted is as old as its extraction
  endif()
  foreach(part TESTS EXAMPLES CONTRIB INSTALL)
    set(HWY_ENABLE_${part} OFF CACHE BOOL "" FORCE)
  endforeach()
  FetchContent_Declare(highway
    URL https://github.com/google/highway/archive/refs/tags/1.0.7.tar.gz
    URL_HASH SHA256=5434488108186c170a5e2fca5e3c9b6ef59a1caa4d520b008a9b8be6b8abe6c5)
  FetchContent_MakeAvailable(highway)
  add_library(hwy::hwy ALIAS hwy)
endif()

# Kernels are compiled for SSE4 (the baseline: every x86 processor since 2009), AVX2 and AVX-512, or for NEON. Highway's
# targets beyond AVX3, whose bits are the lower ones, add no instruction that they use, and would be compiled each;
# scalable vectors (SVE, RVV) cannot lie in the arrays that hold register tiles.
set(VKCONV_DISABLED_TARGETS "(HWY_AVX3-1)|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV")
add_library(vkconv_targets INTERFACE)
target_link_libraries(vkconv_targets INTERFACE hwy::hwy)
target_compile_definitions(vkconv_targets INTERFACE "HWY_DISABLED_TARGETS=(${VKCONV_DISABLED_TARGETS})")
if(VKCONV_SANITIZE)  # instrumented kernels compile slowly: small tiles of this processor's widest vectors only
  target_compile_options(vkconv_targets INTERFACE -march=native)
  target_compile_definitions(vkconv_targets INTERFACE HWY_COMPILE_ONLY_STATIC VKCONV_FEW_ROWS)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(vkconv_targets INTERFACE -march=x86-64-v2)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(vkconv_targets INTERFACE HWY_DISABLE_PCLMUL_AES)
endif()
