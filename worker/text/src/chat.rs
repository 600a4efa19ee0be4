//! Chat templates: Jinja as Hugging Face's `apply_chat_template` sets it up (blocks trimmed,
//! Python's string methods, loop controls, `raise_exception`, `strftime_now`, `tojson` as
//! Python's json.dumps writes it).

use crate::ffi::{bytes_out, guard, EverstepBytes, EverstepText};
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};

/// # Safety
/// The pointers follow text_ffi.h.
#[no_mangle]
pub unsafe extern "C" fn everstep_chat_render(
    template: EverstepText,
    context_json: EverstepText,
    unix_seconds: i64,
    out: *mut EverstepBytes,
    error: *mut EverstepBytes,
) -> bool {
    guard(error, || {
        let context: serde_json::Value =
            serde_json::from_str(context_json.as_str()?).map_err(|e| format!("{e}"))?;
        let source = without_generation_blocks(template.as_str()?);
        let mut env = environment(unix_seconds);
        env.add_template("chat_template", &source).map_err(describe)?;
        let template = env.get_template("chat_template").map_err(describe)?;
        *out = bytes_out(template.render(Value::from_serialize(&context)).map_err(describe)?);
        Ok(())
    })
}

fn environment(unix_seconds: i64) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", move |format: String| strftime(&format, unix_seconds));
    env.add_filter("tojson", |value: Value, kwargs: Kwargs| -> Result<String, Error> {
        let indent: Option<usize> = kwargs.get("indent")?;
        let _: Option<bool> = kwargs.get("ensure_ascii")?;
        kwargs.assert_all_used()?;
        let json = serde_json::to_value(&value)
            .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
        let mut text = String::new();
        write_json(&json, indent, 0, &mut text);
        Ok(text)
    });
    env
}

/// `{% generation %}` marks what the assistant says, for masks; it prints nothing.
fn without_generation_blocks(template: &str) -> String {
    let mut text = template.to_string();
    for word in ["generation", "endgeneration"] {
        for open in ["{%", "{%-"] {
            for close in ["%}", "-%}"] {
                let blank = format!("{open} set _generation = true {close}");
                text = text.replace(&format!("{open} {word} {close}"), &blank);
            }
        }
    }
    text
}

fn describe(error: Error) -> String {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{line}{}", error.detail().map(str::to_string).unwrap_or_else(|| error.to_string()))
}

/// Python's json.dumps(ensure_ascii=False): ", " and ": ", or an item a line with `indent`.
fn write_json(value: &serde_json::Value, indent: Option<usize>, depth: usize, out: &mut String) {
    let new_line = |depth: usize, out: &mut String| {
        if let Some(width) = indent {
            out.push('\n');
            out.push_str(&" ".repeat(width * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    match value {
        serde_json::Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(separator);
                }
                new_line(depth + 1, out);
                write_json(item, indent, depth + 1, out);
            }
            new_line(depth, out);
            out.push(']');
        }
        serde_json::Value::Object(map) if !map.is_empty() => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(separator);
                }
                new_line(depth + 1, out);
                out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                out.push_str(": ");
                write_json(item, indent, depth + 1, out);
            }
            new_line(depth, out);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// The directives that chat templates use, in UTC. Civil date from days: Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms".
fn strftime(format: &str, unix_seconds: i64) -> String {
    const MONTHS: [&str; 12] = [
        "January", "February", "March", "April", "May", "June", "July", "August", "September",
        "October", "November", "December",
    ];
    const DAYS: [&str; 7] =
        ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let days = unix_seconds.div_euclid(86_400);
    let seconds = unix_seconds.rem_euclid(86_400);
    let z = days + 719_468;
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + z.div_euclid(146_097) * 400 + i64::from(month <= 2);
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", year.rem_euclid(100))),
            Some('b') => out.push_str(&month_name[..3]),
            Some('B') => out.push_str(month_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('H') => out.push_str(&format!("{:02}", seconds / 3600)),
            Some('M') => out.push_str(&format!("{:02}", seconds / 60 % 60)),
            Some('S') => out.push_str(&format!("{:02}", seconds % 60)),
            Some('%') => out.push('%'),
            Some(other) => {
                out.push('%');
                out.push(other);
            }
            None => out.push('%'),
        }
    }
    out
}
