//! Names of frames in other tools' files, back to frames.
//!
//! Owns: what the shape of a name says. Because: text formats have no other place for the kind of a frame, and it is
//! the kind that colors, views and findings go by. Does not: guess: a name of any other shape is native code.

use std::borrow::Cow;
use std::num::NonZeroU32;

use deepctx_profile::frame::{Frame, Line, Origin, Role};
use deepctx_profile::intern::StrId;
use deepctx_profile::profile::Profile;

/// The frame of a text from folded stacks.
pub(super) fn frame(profile: &mut Profile, text: &str) -> Frame {
    let text = text.trim();
    match text {
        "[tree full]" => return Frame::TreeFull,
        "[frames full]" => return Frame::TableFull,
        _ => {}
    }
    if let Some(reason) = text.strip_prefix("[unknown: ").and_then(|rest| rest.strip_suffix("]_[k]")) {
        return Frame::KernelUnnamed { reason: profile.text(reason) };
    }
    if let Some(reason) = text.strip_prefix("[unknown: ").and_then(|rest| rest.strip_suffix(']')) {
        return Frame::Unresolved { reason: profile.text(reason), origin: Origin::Native };
    }
    if let Some(symbol) = text.strip_suffix("_[k]") {
        return Frame::Kernel { symbol: profile.text(symbol) };
    }
    if let Some(name) = text.strip_prefix("[gpu] ") {
        return Frame::GpuKernel { name: profile.text(name) };
    }
    if text.starts_with("aten::") && !text.contains('(') {
        return Frame::Operator { name: profile.text(text) };
    }
    if let Some(frame) = python(profile, text) {
        return frame;
    }
    if let Some((module, offset)) = text.rsplit_once("+0x")
        && let Ok(offset) = u64::from_str_radix(offset, 16)
        && module.contains(".so")
    {
        let (module, reason) = (profile.text(module), profile.text(super::NO_SYMBOL.key));
        return Frame::NativeUnnamed { module, offset, reason, role: Role::Code };
    }
    let inlined = text.ends_with("_[i]");
    native(profile, text.strip_suffix("_[i]").unwrap_or(text), "", inlined)
}

/// Native code by name and module.
pub(super) fn native(profile: &mut Profile, symbol: &str, module: &str, inlined: bool) -> Frame {
    Frame::Native {
        symbol: profile.text(symbol),
        module: profile.text(module),
        file: StrId::EMPTY,
        line: None,
        inlined,
        role: Role::Code,
    }
}

/// The process `comm-pid` of an outermost frame.
pub(super) fn process(profile: &mut Profile, text: &str) -> Option<Frame> {
    let (comm, pid) = text.rsplit_once('-')?;
    if comm.is_empty() || pid.starts_with('0') || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let pid = pid.parse().ok()?;
    Some(Frame::Process { comm: profile.text(comm), pid })
}

/// A Python function: `file.py:function`, `file.py:function:12`, `function (file.py:12)`, `file.py(12): function`, or
/// `py::function:file.py`, as written by this tool, py-spy, PyTorch's profiler and CPython's support for perf.
pub(super) fn python(profile: &mut Profile, text: &str) -> Option<Frame> {
    if let Some((function, file)) = text.strip_prefix("py::").and_then(|rest| rest.rsplit_once(':')) {
        return Some(of_python(profile, function, file, None, None));
    }
    if let Some((function, place)) = text.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) {
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) if file.ends_with(".py") => (file, number(line)),
            _ if place.ends_with(".py") => (place, None),
            _ => return None,
        };
        return Some(of_python(profile, function, file, line, None));
    }
    if let Some((place, function)) = text.split_once("): ") {
        let (file, line) = place.rsplit_once('(')?;
        // This line is that of the definition.
        return Some(of_python(profile, function, file, None, number(line)));
    }
    let end = text.find(".py:")? + ".py".len();
    let (file, rest) = (&text[..end], &text[end + 1..]);
    if file.contains('(') || file.contains(' ') || rest.is_empty() {
        return None;
    }
    match rest.rsplit_once(':') {
        Some((function, line)) if number(line).is_some() && !function.is_empty() => {
            Some(of_python(profile, function, file, number(line), None))
        }
        _ => Some(of_python(profile, rest, file, None, None)),
    }
}

/// A function of Python, by a name in whatever form.
pub(super) fn python_function(profile: &mut Profile, text: &str) -> Frame {
    python(profile, text).unwrap_or_else(|| of_python(profile, text, "", None, None))
}

/// A name without addresses of objects, which differ in each run: `<built-in method astype of numpy.ndarray object>`.
pub(super) fn without_addresses(name: &str) -> Cow<'_, str> {
    const AT: &str = " at 0x";
    let Some((first, rest)) = name.split_once(AT) else { return name.into() };
    let mut out = first.to_owned();
    for part in rest.split(AT) {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        out += if rest.len() < part.len() { "" } else { AT };
        out += rest;
    }
    out.into()
}

/// A layer, in our own notation.
pub(super) fn layer(profile: &mut Profile, text: &str) -> Frame {
    let (path, class) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((path, class)) => (path.trim_end(), class),
        None => (text, text),
    };
    Frame::Layer { path: profile.text(path), class: profile.text(class) }
}

/// A Python function by its parts.
pub(super) fn of_python(
    profile: &mut Profile,
    function: &str,
    file: &str,
    line: Line,
    first_line: Line,
) -> Frame {
    let (function, file) = (profile.text(function), profile.text(file));
    Frame::Python { function, file, line, first_line, role: Role::Code }
}

fn number(text: &str) -> Line {
    text.parse::<u32>().ok().and_then(NonZeroU32::new)
}
