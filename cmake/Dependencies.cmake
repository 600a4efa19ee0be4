# What Everstep stands on. Debian packages are found as usual; LibTorch is the unpacked PyPI wheel
# that scripts/setup puts into the cache (its own CMake config asks for a CUDA toolkit, so the
# imported targets are defined here).

include_guard(GLOBAL)

if(DEFINED ENV{EVERSTEP_CACHE})
  set(EVERSTEP_CACHE $ENV{EVERSTEP_CACHE})
else()
  set(EVERSTEP_CACHE $ENV{HOME}/.cache/everstep)
endif()
set(EVERSTEP_TORCH_VERSION 2.15.0)
set(EVERSTEP_TORCH_ROOT ${EVERSTEP_CACHE}/libtorch-${EVERSTEP_TORCH_VERSION}
    CACHE PATH "Folder of the unpacked torch wheel")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tl-expected REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(prometheus-cpp REQUIRED)

# Boost.Asio is headers only; Boost 1.74 on g++ 12 needs <utility> before its coroutine headers.
add_library(everstep_asio INTERFACE)
target_link_libraries(everstep_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(everstep_asio INTERFACE BOOST_ASIO_NO_DEPRECATED)
# (LibTorch's targets have it from their precompiled header, which must come first.)
target_compile_options(everstep_asio INTERFACE
  "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:EVERSTEP_TORCH>>>:SHELL:-include utility>")

# HTTP towards API servers; its own CMake config asks for parts of Boost that its users do not need.
find_library(CPPREST_LIBRARY cpprest REQUIRED)
add_library(everstep_cpprest INTERFACE)
target_link_libraries(everstep_cpprest INTERFACE
  ${CPPREST_LIBRARY} OpenSSL::SSL OpenSSL::Crypto Boost::headers Threads::Threads)

if(EVERSTEP_WORKER)
  set(torch_root ${EVERSTEP_TORCH_ROOT}/torch)
  if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LibTorch ${EVERSTEP_TORCH_VERSION} is not in ${EVERSTEP_TORCH_ROOT}: "
                        "run scripts/setup, or configure with -DEVERSTEP_WORKER=OFF")
  endif()
  add_library(everstep_torch INTERFACE)
  target_include_directories(everstep_torch SYSTEM INTERFACE
    ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
  # at::parallel_for is a template: without this it runs on one thread. The runtime is the wheel's
  # libgomp, under the system library's name.
  target_compile_options(everstep_torch INTERFACE -fopenmp)
  target_link_options(everstep_torch INTERFACE
    "LINKER:--no-as-needed" "LINKER:-rpath,${torch_root}/lib"
    "LINKER:-rpath-link,${EVERSTEP_TORCH_ROOT}/nvidia/cu13/lib")
  target_link_libraries(everstep_torch INTERFACE
    ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so ${torch_root}/lib/libgomp.so.1
    Threads::Threads)

  # torch/torch.h costs half a minute: compiled once, used by every target that is marked TORCH.
  file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cc "")
  add_library(everstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cc)
  target_link_libraries(everstep_torch_pch PUBLIC everstep_flags everstep_torch)
  target_precompile_headers(everstep_torch_pch PRIVATE <torch/torch.h>)
  if(CCACHE)
    target_compile_options(everstep_torch INTERFACE -fpch-preprocess)
  endif()
endif()
