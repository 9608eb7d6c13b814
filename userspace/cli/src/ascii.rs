//! ASCII: text for terminals that show nothing else.
//!
//! Owns: when that is, and what each sign becomes. Because: all commands write the same signs, and names of functions
//! may hold any character; a terminal of another locale shows each as several others. Does not: change what is written
//! to files and pipes, which are UTF-8 whatever the locale.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use deepctx_tui::Charset;

/// Whether a stream is a terminal that shows only ASCII. The locale decides, as in the view.
pub(crate) fn is_needed(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && Charset::detect(|name| std::env::var(name).ok()) == Charset::Ascii
}

/// A text as a stream can show it.
pub(crate) fn shown<'a>(text: &'a str, stream: &impl IsTerminal) -> Cow<'a, str> {
    if text.is_ascii() || !is_needed(stream) {
        return Cow::Borrowed(text);
    }
    let mut padding = Padding::default();
    Cow::Owned(text.chars().fold(String::new(), |mut shown, sign| {
        padding.put(sign, &mut shown);
        shown
    }))
}

/// Writes ASCII in place of UTF-8.
#[derive(Debug)]
pub(crate) struct Ascii<W> {
    out: W,
    padding: Padding,
    /// The beginning of a character whose rest is not written yet.
    begun: Vec<u8>,
}

impl<W: Write> Ascii<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, padding: Padding::default(), begun: Vec::new() }
    }
}

impl<W: Write> Write for Ascii<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = std::mem::take(&mut self.begun);
        text.extend_from_slice(bytes);
        let mut shown = String::new();
        let mut chunks = text.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|sign| self.padding.put(sign, &mut shown));
            let is_incomplete = chunks.peek().is_none()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            match chunk.invalid() {
                [] => {}
                begun if is_incomplete => self.begun = begun.to_vec(),
                _ => self.padding.put(char::REPLACEMENT_CHARACTER, &mut shown),
            }
        }
        self.out.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Columns by which signs became wider: padding behind them is that much shorter, so that tables stay aligned.
#[derive(Debug, Default)]
struct Padding {
    owed: usize,
    is_after_space: bool,
}

impl Padding {
    fn put(&mut self, sign: char, shown: &mut String) {
        match sign {
            ' ' if self.is_after_space && self.owed > 0 => self.owed -= 1,
            '\n' => {
                *self = Self::default();
                shown.push(sign);
            }
            sign => {
                self.is_after_space = sign == ' ';
                let before = shown.len();
                replace(sign, shown);
                self.owed += (shown.len() - before).saturating_sub(1);
            }
        }
    }
}

fn replace(sign: char, shown: &mut String) {
    let ascii = match sign {
        sign if sign.is_ascii() => return shown.push(sign),
        '…' => "...",
        '–' | '−' | '─' | '━' => "-",
        '→' => "->",
        '←' => "<-",
        '≤' => "<=",
        '≥' => ">=",
        '±' => "+-",
        '×' => "x",
        '·' => ".",
        'µ' | 'μ' => "u",
        'σ' => "sigma",
        '²' => "^2",
        '°' => " deg",
        '│' | '┃' => "|",
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => "+",
        '▶' | '▸' => ">",
        '◀' | '◂' => "<",
        '▲' | '↑' => "^",
        '▼' | '↓' => "v",
        '█' | '▇' | '▆' | '▅' | '▄' | '▃' | '▂' | '▁' => "#",
        '✓' => "+",
        '“' | '”' => "\"",
        '‘' | '’' => "'",
        _ => "?",
    };
    shown.push_str(ascii);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a text that is written in pieces of so many bytes.
    fn shown_of(text: &[u8], bytes: usize) -> String {
        let mut shown = Vec::new();
        let mut ascii = Ascii::new(&mut shown);
        text.chunks(bytes).for_each(|piece| ascii.write_all(piece).unwrap());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn signs_become_their_ascii_forms_however_they_are_cut() {
        for bytes in 1..8 {
            let shown = |text: &str| shown_of(text.as_bytes(), bytes);
            assert_eq!(shown("≤ 5.0% ± 3 µs → …é\n"), "<= 5.0% +- 3 us -> ...?\n");
            assert_eq!(shown("plain\n"), "plain\n");
        }
        assert_eq!(shown_of(b"a\xff\xc3 b", 2), "a?? b");
    }

    #[test]
    fn columns_of_tables_stay_aligned() {
        let shown = shown_of("a…   5 µs\nab   6 ms\n≥ 7 – 8\n".as_bytes(), 4);
        assert_eq!(shown, "a... 5 us\nab   6 ms\n>= 7 - 8\n");
    }

    #[test]
    fn files_and_pipes_get_utf8() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_needed(&file) && shown("≤", &file) == "≤");
    }
}
