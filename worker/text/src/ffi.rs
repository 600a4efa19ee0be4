//! Buffers, strings and errors that cross the border to C++.

use std::panic::{catch_unwind, AssertUnwindSafe};

#[repr(C)]
pub struct EverstepText {
    pub data: *const u8,
    pub size: usize,
}

impl EverstepText {
    /// # Safety
    /// `data` points to `size` readable bytes (or `size` is 0).
    pub unsafe fn as_str<'a>(&self) -> Result<&'a str, String> {
        if self.size == 0 {
            return Ok("");
        }
        let bytes = std::slice::from_raw_parts(self.data, self.size);
        std::str::from_utf8(bytes).map_err(|e| format!("the text is not UTF-8: {e}"))
    }

    /// As `as_str`, with U+FFFD in the place of bytes that are not UTF-8.
    ///
    /// # Safety
    /// As `as_str`.
    pub unsafe fn to_lossy<'a>(&self) -> std::borrow::Cow<'a, str> {
        if self.size == 0 {
            return "".into();
        }
        String::from_utf8_lossy(std::slice::from_raw_parts(self.data, self.size))
    }
}

#[repr(C)]
pub struct EverstepBytes {
    pub data: *mut u8,
    pub size: usize,
}

#[repr(C)]
pub struct EverstepIds {
    pub data: *mut u32,
    pub size: usize,
}

pub fn bytes_out(text: String) -> EverstepBytes {
    let boxed = text.into_bytes().into_boxed_slice();
    let size = boxed.len();
    EverstepBytes { data: Box::into_raw(boxed) as *mut u8, size }
}

pub fn ids_out(ids: Vec<u32>) -> EverstepIds {
    let boxed = ids.into_boxed_slice();
    let size = boxed.len();
    EverstepIds { data: Box::into_raw(boxed) as *mut u32, size }
}

/// # Safety
/// `bytes` came from this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn everstep_bytes_free(bytes: EverstepBytes) {
    if !bytes.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)));
    }
}

/// # Safety
/// `ids` came from this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn everstep_ids_free(ids: EverstepIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// Runs `work`; its error, or its panic, becomes `*error` and the return value false.
///
/// # Safety
/// `error` is writable.
pub unsafe fn guard<F>(error: *mut EverstepBytes, work: F) -> bool
where
    F: FnOnce() -> Result<(), String>,
{
    let message = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return true,
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_else(|| "unknown panic".into());
            format!("internal error in the text library: {text}")
        }
    };
    *error = bytes_out(message);
    false
}
