//! ASCII: a drawn screen for terminals that show nothing else.
//!
//! Owns: what each sign of the screen becomes. Because: every part draws with the same signs, and names of functions
//! may hold any character. Does not: know what a cell is about.

use ratatui::buffer::Buffer;

/// Replaces every cell that is not ASCII.
pub(crate) fn replace(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let sign = of(cell.symbol());
            cell.set_symbol(sign);
        }
    }
}

/// The most similar ASCII character.
fn of(symbol: &str) -> &'static str {
    match symbol {
        "▏" | "▎" | "▍" | "│" | "┃" => "|",
        "─" | "━" => "-",
        "┌" | "┐" | "└" | "┘" | "├" | "┤" | "┬" | "┴" | "┼" => "+",
        "…" | "·" | "▁" => ".",
        "▂" | "▃" => ":",
        "▄" | "▅" => "=",
        "▌" | "▋" | "▊" | "▉" | "█" | "▆" | "▇" => "#",
        "╱" => "/",
        "▲" | "▴" | "↑" => "^",
        "▼" | "▾" | "↓" => "v",
        "←" => "<",
        "→" => ">",
        "◆" | "●" => "*",
        "✓" => "+",
        "≤" => "<",
        "×" => "x",
        "µ" => "u",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn every_cell_becomes_ascii() {
        let check = |text: &str, expect: &str| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
            buffer.set_string(0, 0, text, Style::new());
            replace(&mut buffer);
            let line: String = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
            assert_eq!(line.trim_end(), expect);
        };
        check("▏main ──", "|main --");
        check("▲ 5 µs → f…", "^ 5 us > f.");
        check("a 数据 é", "a ? ?  ?");
    }
}
