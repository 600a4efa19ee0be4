# Builds the Rust library and copies it to ARCHIVE. Variables: CARGO, MANIFEST, TARGET_DIR, ARCHIVE.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${TARGET_DIR}
    ${CARGO} build --release --locked --quiet --manifest-path ${MANIFEST}
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "cargo could not build worker/text: the first build fetches crates, so it "
                      "needs the network (or a vendored registry); see the messages above")
endif()
file(COPY_FILE ${TARGET_DIR}/release/libeverstep_text.a ${ARCHIVE})
file(TOUCH_NOCREATE ${ARCHIVE})
