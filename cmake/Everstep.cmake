# One target per folder. A library lists its sources and headers; a program its main file.
#
#   everstep_library(comm SOURCES a.cc a.h DEPS common [TORCH])       -> everstep_comm
#   everstep_program(everstep-worker SOURCES main.cc DEPS trainer [TORCH])
#   everstep_test(comm_test SOURCES a_test.cc DEPS comm [TORCH])      -> bin/comm_test, in ctest
#
# DEPS names folders' libraries without their prefix, or any other target as it is.

include_guard(GLOBAL)

add_library(everstep_flags INTERFACE)
target_include_directories(everstep_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(everstep_flags INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # It sees overlaps in "text" + std::string (gcc.gnu.org/PR105651).
  target_compile_options(everstep_flags INTERFACE -Wno-restrict)
endif()
if(EVERSTEP_WERROR)
  target_compile_options(everstep_flags INTERFACE -Werror)
endif()
if(EVERSTEP_SANITIZE)
  target_compile_options(everstep_flags INTERFACE -fsanitize=${EVERSTEP_SANITIZE}
                                                  -fno-omit-frame-pointer)
  target_link_options(everstep_flags INTERFACE -fsanitize=${EVERSTEP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With the sanitizers' checks in between, GCC no longer sees what is initialised.
    target_compile_options(everstep_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(EVERSTEP_SANITIZE MATCHES thread)
    # The thread sanitizer does not know fences, which Asio has beside its locks.
    target_compile_options(everstep_flags INTERFACE -Wno-tsan)
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what a precompiled header needs; the base directory lets clones share results.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

function(_everstep_configure target)
  cmake_parse_arguments(ARG "TORCH" "" "DEPS" ${ARGN})
  set(libraries everstep_flags)
  foreach(dependency IN LISTS ARG_DEPS)
    if(TARGET everstep_${dependency})
      list(APPEND libraries everstep_${dependency})
    else()
      list(APPEND libraries ${dependency})
    endif()
  endforeach()
  target_link_libraries(${target} PUBLIC ${libraries})
  if(ARG_TORCH)
    set_target_properties(${target} PROPERTIES EVERSTEP_TORCH ON)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      # It would be compiled with -fPIE, which a header precompiled with -fPIC does not fit.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    target_link_libraries(${target} PUBLIC everstep_torch)
    target_precompile_headers(${target} REUSE_FROM everstep_torch_pch)
  endif()
endfunction()

function(everstep_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_library(everstep_${name} STATIC ${ARG_SOURCES})
  set_target_properties(everstep_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(ARG_TORCH)
    _everstep_configure(everstep_${name} TORCH DEPS ${ARG_DEPS})
  else()
    _everstep_configure(everstep_${name} DEPS ${ARG_DEPS})
  endif()
endfunction()

function(everstep_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_TORCH)
    _everstep_configure(${name} TORCH DEPS ${ARG_DEPS})
  else()
    _everstep_configure(${name} DEPS ${ARG_DEPS})
  endif()
endfunction()

# LABELS: unit (default), golden, e2e, recovery, cluster. ARGUMENTS and TIMEOUT_SECONDS go to ctest.
function(everstep_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT_SECONDS" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_TORCH)
    _everstep_configure(${name} TORCH DEPS ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  else()
    _everstep_configure(${name} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  endif()
  target_compile_definitions(${name} PRIVATE EVERSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             EVERSTEP_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT_SECONDS)
    set(ARG_TIMEOUT_SECONDS 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT_SECONDS})
endfunction()
