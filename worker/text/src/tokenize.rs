//! Tokenizer entry points.

use crate::ffi::{bytes_out, guard, ids_out, EverstepBytes, EverstepIds, EverstepText};
use std::collections::HashSet;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{AddedToken, Tokenizer};

pub struct EverstepTokenizer {
    inner: Tokenizer,
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_load(
    json: EverstepText,
    out: *mut *mut EverstepTokenizer,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let mut inner: Tokenizer = json.as_str()?.parse().map_err(|e| format!("{e}"))?;
        // Cutting and padding are the data pipeline's business.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| format!("{e}"))?;
        *out = Box::into_raw(Box::new(EverstepTokenizer { inner }));
        Ok(())
    })
}

/// # Safety
/// `tokenizer` came from `everstep_tokenizer_load` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_free(tokenizer: *mut EverstepTokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_encode(
    tokenizer: *const EverstepTokenizer,
    texts: *const EverstepText,
    count: usize,
    add_special_tokens: bool,
    ids: *mut EverstepIds,
    ends: *mut EverstepIds,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let texts = if count == 0 { &[] } else { std::slice::from_raw_parts(texts, count) };
        let tokenizer = &(*tokenizer).inner;
        let encodings = if let [text] = texts {
            vec![tokenizer.encode_fast(text.to_lossy(), add_special_tokens)]
        } else {
            let inputs: Vec<_> = texts.iter().map(|text| text.to_lossy()).collect();
            match tokenizer.encode_batch_fast(inputs, add_special_tokens) {
                Ok(encodings) => encodings.into_iter().map(Ok).collect(),
                Err(e) => vec![Err(e)],
            }
        };
        let mut all = Vec::new();
        let mut all_ends = Vec::with_capacity(count);
        for encoding in encodings {
            all.extend_from_slice(encoding.map_err(|e| format!("{e}"))?.get_ids());
            all_ends.push(u32::try_from(all.len()).map_err(|_| "more than 2^32 tokens at once")?);
        }
        *ids = ids_out(all);
        *ends = ids_out(all_ends);
        Ok(())
    })
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_decode(
    tokenizer: *const EverstepTokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut EverstepBytes,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        let text =
            (*tokenizer).inner.decode(ids, skip_special_tokens).map_err(|e| format!("{e}"))?;
        *out = bytes_out(text);
        Ok(())
    })
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_token_id(
    tokenizer: *const EverstepTokenizer,
    token: EverstepText,
) -> i64 {
    let mut found = -1;
    let mut error = bytes_out(String::new());
    guard(&mut error, || {
        found = (*tokenizer).inner.token_to_id(token.as_str()?).map_or(-1, i64::from);
        Ok(())
    });
    crate::ffi::everstep_bytes_free(error);
    found
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_vocab_size(
    tokenizer: *const EverstepTokenizer,
) -> usize {
    (*tokenizer).inner.get_vocab_size(true)
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_add_tokens(
    tokenizer: *mut EverstepTokenizer,
    tokens: *const EverstepText,
    count: usize,
    special: bool,
    new_tokens: *mut usize,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let inner = &mut (*tokenizer).inner;
        let known: HashSet<String> = inner
            .get_added_tokens_decoder()
            .into_values()
            .filter(|token| token.special || !special)
            .map(|token| token.content)
            .collect();
        let mut added = Vec::new();
        let mut unknown = HashSet::new();
        for token in if count == 0 { &[] } else { std::slice::from_raw_parts(tokens, count) } {
            let content = token.as_str()?;
            if inner.token_to_id(content).is_none() {
                unknown.insert(content);
            }
            if !known.contains(content) {
                // As transformers does: special tokens match the raw text, others the normalized.
                added.push(AddedToken::from(content, special).normalized(!special));
            }
        }
        *new_tokens = unknown.len();
        if added.is_empty() {
            return Ok(());
        }
        if special {
            inner.add_special_tokens(&added);
        } else {
            inner.add_tokens(&added);
        }
        Ok(())
    })
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_to_json(
    tokenizer: *const EverstepTokenizer,
    out: *mut EverstepBytes,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        *out = bytes_out((*tokenizer).inner.to_string(true).map_err(|e| format!("{e}"))?);
        Ok(())
    })
}

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_tokenizer_use_metaspace(
    tokenizer: *mut EverstepTokenizer,
    prepend: bool,
    first_only: bool,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let inner = &mut (*tokenizer).inner;
        let normalizer =
            serde_json::to_value(inner.get_normalizer()).map_err(|e| format!("{e}"))?;
        let prepends = normalizer.to_string().contains("\"Prepend\"");
        if !prepends || inner.get_pre_tokenizer().is_some() {
            return Ok(());
        }
        let scheme = match (prepend, first_only) {
            (false, _) => PrependScheme::Never,
            (true, true) => PrependScheme::First,
            (true, false) => PrependScheme::Always,
        };
        inner.with_normalizer(None::<tokenizers::NormalizerWrapper>);
        inner.with_pre_tokenizer(Some(Metaspace::new('\u{2581}', scheme, false)));
        Ok(())
    })
}
