//! C interface to `tokenizers` and `minijinja` (see text_ffi.h, the other side of this file).
//!
//! Rules of the border: no panic crosses it (every entry point runs under `guard`), every error is
//! a line of text, and what is handed out is freed by the matching `*_free`.

mod chat;
mod ffi;
mod tokenize;
