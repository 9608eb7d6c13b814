//! Rules on reasons: each is declared once, in one form, and listed in `docs/loss.md`.
//!
//! Owns: the rules, the tables of that page, those of pages that list their own reasons, and the table that reports
//! look advice up in. Because: a user looks up the key from a report, and must find one sentence in a page that is
//! always current. Does not: read declarations; see [`super::declarations`].

use super::declarations::{self, Declaration};
use super::syntax;
use super::tree::{Crate, File};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The page with the tables.
const PAGE: &str = "docs/loss.md";
/// Key, class and advice of all reasons, for readers of profiles: these have only keys and sentences.
const DECLARED: &str = "profile/src/view/reasons.tsv";
/// Start of a page's table of the reasons that name it.
const TABLE_OF_PAGE: &str = "<!-- reasons of this page -->\n";
/// End of a table.
const TABLE_END: &str = "<!-- end -->";
/// The file of the macro itself.
const MECHANISM: &str = "common/src/reason.rs";
/// Files with pairs of a name and a sentence that are no reasons.
const NAMES: &[&str] = &[
    "analysis/src/render/html/model.rs",
    "profile/storage/src/error.rs",
    "uprobes/events/src/role.rs",
    "uprobes/src/row.rs",
];

/// A declaration and its file.
struct LocatedDeclaration {
    file: String,
    declared: Declaration,
}

/// Checks all declarations and the page's tables; with `write`, updates the tables.
pub(super) fn check(root: &Path, crates: &[Crate], write: bool, broken: &mut Vec<String>) -> Result<()> {
    let product = || crates.iter().filter(|one| !one.folder.starts_with("tests") && one.folder != "xtask");
    let files: Vec<&File> = product().flat_map(Crate::product).collect();
    let found = collect(&files, broken);
    unique(&found, broken);
    let pages = std::fs::read_dir(root.join("docs"))?.flatten();
    let pages = pages.map(|page| page.file_name().to_string_lossy().into_owned());
    let pages: BTreeSet<_> = pages.filter(|page| page.ends_with(".md")).collect();
    wording(&found, &pages, broken);
    let mut needed = BTreeSet::new();
    files.iter().for_each(|file| outside(file, &mut needed, broken));
    for file in NAMES.iter().filter(|file| !needed.contains(**file)) {
        broken.push(format!("xtask/src/tidy/reasons.rs: the exception for {file} is not needed any more"));
    }
    let docs = pages.iter().map(|name| format!("docs/{name}"));
    for name in docs.chain([DECLARED.to_owned()]) {
        let path = root.join(&name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let fresh = match name.as_str() {
            DECLARED => Ok(tab_separated(&found)),
            PAGE => with_tables(&text, &found),
            page => with_own_table(page.trim_start_matches("docs/"), &text, &found),
        };
        match fresh {
            Err(what) => broken.push(format!("{name}: {what}")),
            Ok(fresh) if fresh == text => {}
            Ok(fresh) if write => std::fs::write(&path, fresh)?,
            Ok(_) => {
                broken.push(format!("{name}: its tables of reasons are stale; cargo xtask tidy --write"))
            }
        }
    }
    Ok(())
}

fn collect(files: &[&File], broken: &mut Vec<String>) -> Vec<LocatedDeclaration> {
    let mut all = Vec::new();
    for file in files {
        for block in declarations::blocks(file.product()) {
            match declarations::read(&file.text, &file.code, block) {
                Ok(found) => {
                    let found = found.into_iter();
                    all.extend(
                        found.map(|declared| LocatedDeclaration { file: file.name.clone(), declared }),
                    );
                }
                Err((line, what)) => broken.push(format!("{}:{line}: reasons!: {what}", file.name)),
            }
        }
    }
    all
}

fn unique(found: &[LocatedDeclaration], broken: &mut Vec<String>) {
    let mut first: BTreeMap<&str, &LocatedDeclaration> = BTreeMap::new();
    for one in found {
        if let Some(other) = first.insert(&one.declared.key, one) {
            broken.push(format!(
                "{}:{}: the key {} is that of {}:{}, too",
                one.file, one.declared.line, one.declared.key, other.file, other.declared.line
            ));
        }
    }
}

fn wording(found: &[LocatedDeclaration], pages: &BTreeSet<String>, broken: &mut Vec<String>) {
    for LocatedDeclaration { file, declared } in found {
        let mut rule = |what: String| broken.push(format!("{file}:{}: {what}", declared.line));
        let Declaration { key, sentence, page, .. } = declared;
        if !is_key(key) {
            rule(format!("the key {key:?} is not kebab-case"));
        }
        if sentence.ends_with('.') {
            rule(format!("the sentence of {key} ends in a full stop"));
        }
        if !pages.contains(page) {
            rule(format!("there is no page docs/{page}"));
        }
    }
}

fn is_key(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty() && text.split('-').all(|word| !word.is_empty() && word.chars().all(letter))
}

/// Undeclared pairs that look like reasons. `needed` collects the used exceptions.
fn outside(file: &File, needed: &mut BTreeSet<String>, broken: &mut Vec<String>) {
    if file.name == MECHANISM {
        return;
    }
    let (code, text) = (file.product(), &file.text);
    let mut rule = |at: usize, what: String| {
        let line = text[..at].matches('\n').count() + 1;
        broken.push(format!("{}:{line}: {what}; declare it with reasons! ({MECHANISM})", file.name));
    };
    for (at, _) in code.match_indices("fn key(") {
        let signature = code[at..].split(['{', ';']).next().unwrap_or_default();
        if signature.contains("-> &'static str") {
            rule(at, "keys of reasons by hand".to_owned());
        }
    }
    let blocks = declarations::blocks(code);
    let strings = syntax::strings(text).into_iter();
    let outside = strings
        .filter(|part| part.end <= code.len() && !blocks.iter().any(|block| block.contains(&part.start)));
    let strings: Vec<_> = outside.collect();
    for (number, part) in strings.iter().enumerate() {
        let value = declarations::unescaped(&text[part.clone()]);
        let before = code[..part.start].trim_end();
        let compound = value.contains('-') && is_key(&value);
        if before.ends_with("Reason::new(") || (before.ends_with(" key:") && compound) {
            rule(part.start, format!("the reason {value:?}"));
        } else if compound && (before.ends_with(".text(") || before.ends_with(".intern(")) {
            rule(part.start, format!("the reason {value:?} of a frame"));
        } else if compound
            && let Some(next) = strings.get(number + 1)
            && code[part.end..next.start].trim() == ","
            && declarations::unescaped(&text[next.clone()]).contains(' ')
        {
            if NAMES.contains(&file.name.as_str()) {
                needed.insert(file.name.clone());
            } else {
                rule(part.start, format!("the key {value:?} and its sentence"));
            }
        }
    }
}

/// The page with its tables regenerated. Each is between `<!-- reasons: CLASS -->` and `<!-- end -->`.
fn with_tables(page: &str, found: &[LocatedDeclaration]) -> std::result::Result<String, String> {
    let mut classes: BTreeSet<&str> = found.iter().map(|one| one.declared.class.as_str()).collect();
    let mut fresh = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("<!-- reasons: ") {
        let (class, after) = after.split_once(" -->").ok_or("a marker of a table is not closed")?;
        let (_, after) =
            after.split_once(TABLE_END).ok_or_else(|| format!("the table of {class} has no {TABLE_END}"))?;
        if !classes.remove(class) {
            return Err(format!("no reason is of the class {class}, or it has two tables"));
        }
        fresh.push_str(before);
        fresh.push_str(&format!("<!-- reasons: {class} -->\n{}{TABLE_END}", table(class, found)));
        rest = after;
    }
    fresh.push_str(rest);
    match classes.first() {
        Some(class) => Err(format!("reasons of the class {class} have no table: <!-- reasons: {class} -->")),
        None => Ok(fresh),
    }
}

/// A page with the table of its reasons, if it has a place for one.
fn with_own_table(
    name: &str,
    page: &str,
    found: &[LocatedDeclaration],
) -> std::result::Result<String, String> {
    let Some((before, after)) = page.split_once(TABLE_OF_PAGE) else { return Ok(page.to_owned()) };
    let (_, after) =
        after.split_once(TABLE_END).ok_or_else(|| format!("its table of reasons has no {TABLE_END}"))?;
    let rows = sorted(found, |one| one.page == name);
    if rows.is_empty() {
        return Err("no reason names it, and it has a table of them".to_owned());
    }
    let mut table = "| reason | what it means | what helps |\n|---|---|---|\n".to_owned();
    for one in rows {
        table.push_str(&format!("| `{}` | {} | {} |\n", one.key, cell(&one.sentence), helps(one)));
    }
    Ok(format!("{before}{TABLE_OF_PAGE}{table}{TABLE_END}{after}"))
}

fn table(class: &str, found: &[LocatedDeclaration]) -> String {
    let mut table =
        "| reason | what it means | what helps, or when to expect it | more |\n|---|---|---|---|\n"
            .to_owned();
    for one in sorted(found, |one| one.class == class) {
        let more = match one.page.as_str() {
            "loss.md" => "–".to_owned(),
            page => format!("[{page}]({page})"),
        };
        table.push_str(&format!("| `{}` | {} | {} | {more} |\n", one.key, cell(&one.sentence), helps(one)));
    }
    table
}

/// A line for each reason: key, class and, if there is one, advice.
fn tab_separated(found: &[LocatedDeclaration]) -> String {
    let line = |one: &Declaration| {
        let helps = one.helps.as_deref().map_or_else(String::new, |helps| format!("\t{helps}"));
        format!("{}\t{}{helps}\n", one.key, one.class)
    };
    sorted(found, |_| true).into_iter().map(line).collect()
}

/// The selected declarations, sorted by key.
fn sorted(found: &[LocatedDeclaration], is_in: impl Fn(&Declaration) -> bool) -> Vec<&Declaration> {
    let mut rows: Vec<_> = found.iter().map(|one| &one.declared).filter(|one| is_in(one)).collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn helps(one: &Declaration) -> String {
    one.helps.as_deref().map_or("–".to_owned(), cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> File {
        File { name: name.to_owned(), text: text.to_owned(), code: syntax::code_of(text) }
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let one = file("c/src/lib.rs", text);
        let mut broken = Vec::new();
        let found = collect(&[&one], &mut broken);
        unique(&found, &mut broken);
        wording(&found, &BTreeSet::from(["a.md".to_owned()]), &mut broken);
        outside(&one, &mut BTreeSet::new(), &mut broken);
        let ends = "; declare it with reasons! (common/src/reason.rs)";
        let broken: Vec<_> = broken.iter().map(|line| line.trim_end_matches(ends)).collect();
        assert_eq!(broken, expect, "{text}");
    }

    #[test]
    fn a_key_is_unique_and_kebab_case() {
        let block = |rest: &str| format!("reasons! {{ class Gap, page \"a.md\"; {rest} }}");
        check(&block("const A = \"a-b\", \"x\";"), &[]);
        let twice = block("const A = \"a\", \"x\";\nconst B = \"a\", \"y\";");
        check(&twice, &["c/src/lib.rs:2: the key a is that of c/src/lib.rs:1, too"]);
        check(&block("const A = \"A-b\", \"x\";"), &["c/src/lib.rs:1: the key \"A-b\" is not kebab-case"]);
        check(&block("const A = \"a\", \"x.\";"), &["c/src/lib.rs:1: the sentence of a ends in a full stop"]);
        let elsewhere = block("const A = \"a\", \"x\", page \"b.md\";");
        check(&elsewhere, &["c/src/lib.rs:1: there is no page docs/b.md"]);
    }

    #[test]
    fn a_reason_outside_of_the_macro_is_named() {
        check("fn key(&self) -> &'static str { A }", &["c/src/lib.rs:1: keys of reasons by hand"]);
        check("fn key(code: u8) -> Key { A }", &[]);
        check("\nlet a = Reason::new(\"late\", y);", &["c/src/lib.rs:2: the reason \"late\""]);
        check("NoName { key: \"too-late\", x }", &["c/src/lib.rs:1: the reason \"too-late\""]);
        check("p.text(\"not-seen\")", &["c/src/lib.rs:1: the reason \"not-seen\" of a frame"]);
        check("p.text(\"seen\")", &[]);
        check("x(\"a-b\",\n \"it was so\")", &["c/src/lib.rs:1: the key \"a-b\" and its sentence"]);
        check("x(\"a-b\", \"c-d\")", &[]);
        check("// x(\"a-b\", \"it was so\")\n#[cfg(test)]\nmod tests { x(\"a-b\", \"it was so\") }", &[]);
    }

    #[test]
    fn tables_are_made_from_the_declarations() {
        let text = "reasons! { class Gap, page \"a.md\"; const B = \"b\", \"x|y\"; const A = \"a\", \"z\", page \"loss.md\", helps \"h\"; }";
        let found = collect(&[&file("c/src/lib.rs", text)], &mut Vec::new());
        let head =
            "| reason | what it means | what helps, or when to expect it | more |\n|---|---|---|---|\n";
        let expect = format!(
            "one\n<!-- reasons: Gap -->\n{head}| `a` | z | h | – |\n| `b` | x\\|y | – | [a.md](a.md) |\n<!-- end -->\ntwo\n"
        );
        let stale = "one\n<!-- reasons: Gap -->\nold\n<!-- end -->\ntwo\n";
        assert_eq!(with_tables(stale, &found).as_ref(), Ok(&expect));
        assert_eq!(with_tables(&expect, &found).as_ref(), Ok(&expect));
        assert_eq!(tab_separated(&found), "a\tGap\th\nb\tGap\n");
        assert!(with_tables("one\n", &found).unwrap_err().contains("the class Gap have no table"));
        let page = format!("one\n{TABLE_OF_PAGE}old\n<!-- end -->\ntwo\n");
        let expect = format!(
            "one\n{TABLE_OF_PAGE}| reason | what it means | what helps |\n|---|---|---|\n| `b` | x\\|y | – |\n<!-- end -->\ntwo\n"
        );
        assert_eq!(with_own_table("a.md", &page, &found).as_ref(), Ok(&expect));
        assert_eq!(with_own_table("a.md", "none\n", &found).as_deref(), Ok("none\n"));
        assert!(with_own_table("c.md", &page, &found).unwrap_err().contains("no reason names it"));
        assert!(with_tables("<!-- reasons: Gap -->", &found).unwrap_err().contains("has no <!-- end -->"));
    }
}
