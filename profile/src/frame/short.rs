//! Short names: C++ names reduced to the parts that distinguish them.
//!
//! Owns: [`short_labels`], the only place that leaves parts of a name out. Because: an instantiated template has a
//! name of a thousand characters, and the names of one operator begin and end alike, so names truncated to the width
//! of a column all look the same. Does not: change what is stored, searched or exported for programs: those use full
//! names.
//!
//! | form | of `void c10::function_ref<void (long)>::callback_fn<Loop<at::mul_kernel(at::Iter&)::{lambda()#2}> >(long)` |
//! |---|---|
//! | path | `c10::function_ref::callback_fn<mul_kernel {lambda}>`: no types, and the function that wrote the lambda |
//! | one argument | the same with the first template argument that differs from that of another name of this path |
//! | all arguments | the same with all template arguments, each by its path, and the numbers of lambdas |
//! | parameters | the same with parameters: what overloads differ by |
//! | difference | `c10::function_ref::callback_fn<mul_kernel {lambda}, … float>`: the path with the first word that differs |
//! | full | the name as it is |
//!
//! Kernels of devices begin with all arguments: they say what a kernel computes.
//!
//! Each name has the shortest form that no other name of its view has, so two names never read the same.

use std::collections::BTreeMap;

use super::FrameKind;

/// Deepest nesting of template arguments that is searched for a lambda.
const DEPTH_MAX: usize = 16;
/// The part of a path without a name in the source.
const ANONYMOUS: &str = "(anonymous namespace)";
/// First characters of a part whose name is in brackets: `{lambda()#1}`, `<impl a::B for c::D>`.
const BRACKETS: [char; 4] = ['{', '(', '\'', '<'];
/// Most words from a lambda's number, which stands for a type, to that type: `{lambda()#13}::operator()()
/// const::{lambda(long`.
const NUMBER_TO_TYPE_MAX: usize = 8;
/// Operators whose name consists of brackets: longer ones before their prefixes.
const OPERATORS: [&str; 13] =
    ["()", "[]", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"];

/// How much of a name is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Path,
    Argument(usize),
    Arguments,
    Parameters,
    /// The shortest form, with [`Name::differing`].
    Difference,
    Full,
}

/// The labels of one view, in their order, with the names of C++ functions and GPU kernels shortened. Equal labels get
/// equal texts, different labels different ones.
pub fn short_labels<'n>(labels: impl IntoIterator<Item = (FrameKind, &'n str)>) -> Vec<String> {
    let (mut names, mut forms) = (Vec::new(), BTreeMap::new());
    for (kind, label) in labels {
        // The arguments of device kernels show what they compute.
        let form = match kind {
            FrameKind::Native => Form::Path,
            FrameKind::GpuKernel => Form::Arguments,
            _ => Form::Full,
        };
        names.push(label);
        let mut name = if form == Form::Full { Name::whole(label) } else { Name::parse(label) };
        name.at_first = form;
        forms.insert(label, (name, form));
    }
    let texts = different_texts(&mut forms);
    names.iter().map(|full| texts.get(full).cloned().unwrap_or_default()).collect()
}

/// The name of a layer without the prefix that it shares with its enclosing layer `outer`: `….attn (Attention)`.
pub fn layer_within(label: &str, outer: &str) -> Option<String> {
    let path = outer.split(' ').next().unwrap_or_default();
    let rest = label.strip_prefix(path).filter(|rest| rest.starts_with('.') && !path.is_empty())?;
    Some(format!("…{rest}"))
}

/// The texts of these names, lengthened until they differ.
fn different_texts<'n>(forms: &mut BTreeMap<&'n str, (Name<'n>, Form)>) -> BTreeMap<&'n str, String> {
    let mut texts: BTreeMap<&'n str, String> =
        forms.iter().map(|(full, (name, form))| (*full, name.text(*form))).collect();
    loop {
        let mut by_text: BTreeMap<&str, Vec<&'n str>> = BTreeMap::new();
        for (full, text) in &texts {
            by_text.entry(text).or_default().push(*full);
        }
        let groups: Vec<Vec<&'n str>> = by_text.into_values().filter(|alike| alike.len() > 1).collect();
        if groups.is_empty() {
            return texts;
        }
        for alike in groups {
            let differing = first_difference(&alike, forms);
            let word = next_word(&alike, forms);
            for full in alike {
                if let Some((name, form)) = forms.get_mut(full) {
                    *form = longer(*form, differing, word.is_some());
                    if *form == Form::Difference {
                        name.differing.extend(word);
                    }
                    texts.insert(full, name.text(*form));
                }
            }
        }
    }
}

fn longer(form: Form, differing: Option<usize>, has_word: bool) -> Form {
    match (form, differing) {
        (Form::Path, Some(argument)) => Form::Argument(argument),
        (Form::Path | Form::Argument(_), _) => Form::Arguments,
        (Form::Arguments, _) => Form::Parameters,
        (Form::Parameters | Form::Difference, _) if has_word => Form::Difference,
        (Form::Parameters | Form::Difference | Form::Full, _) => Form::Full,
    }
}

/// Index of the next word, among those not shown yet, that differs between these names. A type is more informative than
/// the number of a lambda.
fn next_word(alike: &[&str], forms: &BTreeMap<&str, (Name<'_>, Form)>) -> Option<usize> {
    let of_all: Vec<&(Name<'_>, Form)> = alike.iter().filter_map(|full| forms.get(*full)).collect();
    if !of_all.iter().all(|(_, form)| matches!(form, Form::Parameters | Form::Difference)) {
        return None;
    }
    let is_shown = |at: &usize| of_all.iter().any(|(name, _)| name.differing.contains(at));
    let of_all: Vec<Vec<&str>> = of_all.iter().map(|(name, _)| words(name.full).collect()).collect();
    let is_number =
        |at: &usize| of_all.iter().any(|of| of.get(*at).is_some_and(|word| word.starts_with('#')));
    let fewest = of_all.iter().map(Vec::len).min()?;
    let differs = |at: &usize| of_all.iter().any(|of| of[*at] != of_all[0][*at]);
    let mut differing = (0..fewest).filter(|at| differs(at) && !is_shown(at));
    let first = differing.next()?;
    // After a number, other words may differ at every index: only one that follows closely helps.
    let near = differing.take_while(|at| at - first <= NUMBER_TO_TYPE_MAX);
    Some(std::iter::once(first).chain(near).find(|at| !is_number(at)).unwrap_or(first))
}

/// The words of a name, separated by brackets, commas and blanks, such as `at::Tensor`, `const` and `#2`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let is_between = |c: char| c.is_whitespace() || "<>(),{}&*[]".contains(c);
    name.split(is_between).map(|word| word.trim_matches(':')).filter(|word| !word.is_empty())
}

/// Index of the first template argument that differs between these names.
fn first_difference(alike: &[&str], forms: &BTreeMap<&str, (Name<'_>, Form)>) -> Option<usize> {
    let arguments: Vec<&[&str]> =
        alike.iter().filter_map(|full| forms.get(full)).map(|(name, _)| name.arguments.as_slice()).collect();
    let most = arguments.iter().map(|of| of.len()).max()?;
    (0..most).find(|&at| arguments.iter().any(|of| of.get(at) != arguments[0].get(at)))
}

/// A part of a path: `vector<int>` of `std::vector<int>::push_back(int const&)`.
#[derive(Clone, Copy, Debug, Default)]
struct Part<'n> {
    /// Without arguments and parameters.
    name: &'n str,
    /// With the text between `<` and `>`.
    arguments: Option<&'n str>,
    /// From `(` on, with the qualifiers of the function.
    parameters: &'n str,
}

impl Part<'_> {
    fn is_lambda(&self) -> bool {
        self.name.starts_with("{lambda") || self.name.starts_with("'lambda")
    }
}

/// A parsed name.
#[derive(Clone, Debug)]
struct Name<'n> {
    full: &'n str,
    /// Prefix added by a view: `[gpu] `.
    before: &'n str,
    /// Suffix added by a view: ` (file.cpp:12)`, or the offset of an instruction: `+0x20`.
    behind: &'n str,
    parts: Vec<Part<'n>>,
    /// Template arguments of all parts.
    arguments: Vec<&'n str>,
    /// The shortest form allowed.
    at_first: Form,
    /// Indices of words that distinguish it from otherwise equal names.
    differing: Vec<usize>,
}

impl<'n> Name<'n> {
    /// A name that is not parsed.
    fn whole(full: &'n str) -> Self {
        Self {
            full,
            before: "",
            behind: "",
            parts: Vec::new(),
            arguments: Vec::new(),
            at_first: Form::Full,
            differing: Vec::new(),
        }
    }

    fn parse(full: &'n str) -> Self {
        let (before, rest) = if full.starts_with("[gpu] ") { full.split_at(6) } else { ("", full) };
        let (rest, behind) = rest.split_at(place_at(rest));
        // `<T as Trait>::f` of Rust, reasons in brackets, and names of other languages have no such path.
        let has_path = !rest.starts_with(['<', '[']) && !is_of_other_language(rest) && !is_in_words(rest);
        let parts = if has_path { parts(rest) } else { Vec::new() };
        let arguments =
            parts.iter().filter_map(|part| part.arguments).flat_map(|of| split(of, ",")).collect();
        Self { before, behind, parts, arguments, at_first: Form::Path, ..Self::whole(full) }
    }

    fn text(&self, form: Form) -> String {
        let path = self.path(form);
        if path.is_empty() || form == Form::Full {
            return self.full.to_owned();
        }
        let shown = if form == Form::Difference { self.at_first } else { form };
        let mut arguments = match shown {
            Form::Path => self.lambda_of_arguments().into_iter().collect(),
            Form::Argument(at) => self.arguments.get(at).map(|of| argument(of)).into_iter().collect(),
            _ => self.arguments.iter().map(|of| argument(of)).collect::<Vec<_>>(),
        };
        if form == Form::Difference {
            let words: Vec<&str> = words(self.full).collect();
            let differing = self.differing.iter().filter_map(|at| words.get(*at));
            arguments.extend(differing.map(|word| format!("… {word}")));
        }
        let Self { before, behind, .. } = self;
        let arguments =
            if arguments.is_empty() { String::new() } else { format!("<{}>", arguments.join(", ")) };
        let parameters = match form {
            Form::Parameters => self.parts.last().map_or("", |part| part.parameters),
            _ => "",
        };
        format!("{before}{path}{arguments}{parameters}{behind}")
    }

    /// The names of the parts; a lambda is named by its enclosing function.
    fn path(&self, form: Form) -> String {
        let numbers = matches!(form, Form::Arguments | Form::Parameters);
        let mut path = String::new();
        let mut within = false;
        for part in self.parts.iter().filter(|part| part.name != ANONYMOUS) {
            if part.is_lambda() {
                path.push_str(if within { "" } else { " {lambda" });
                within = true;
                if let (true, Some((_, number))) = (numbers, part.name.rsplit_once('#')) {
                    path.push('#');
                    path.push_str(number.trim_end_matches('}'));
                }
            } else if !(within && part.name == "operator()") {
                path.push_str(match (within, path.is_empty()) {
                    (true, _) => "}::",
                    (false, false) => "::",
                    (false, true) => "",
                });
                within = false;
                path.push_str(part.name);
            }
        }
        path.push_str(if within { "}" } else { "" });
        path
    }

    /// The function around the first lambda in the template arguments, which shows the template's purpose.
    fn lambda_of_arguments(&self) -> Option<String> {
        self.arguments
            .iter()
            .find_map(|of| author_of_lambda(of, DEPTH_MAX))
            .map(|of| format!("{of} {{lambda}}"))
    }
}

/// A template argument by its path.
fn argument(text: &str) -> String {
    let name = Name::parse(text);
    let qualifiers = text.len() - text.trim_end_matches(['*', '&', ' ']).len();
    let short = name.text(Form::Path);
    if short == text { short } else { format!("{short}{}", text[text.len() - qualifiers..].trim()) }
}

fn author_of_lambda(text: &str, depth: usize) -> Option<&str> {
    if depth == 0 || !text.contains("{lambda") {
        return None;
    }
    let name = Name::parse(text);
    match name.parts.iter().position(Part::is_lambda) {
        Some(at) => name.parts[..at].iter().rev().map(|part| part.name).find(|name| *name != ANONYMOUS),
        None => name.arguments.iter().find_map(|of| author_of_lambda(of, depth - 1)),
    }
}

/// Begin of a view's suffix: the offset of an instruction, or the source line.
fn place_at(text: &str) -> usize {
    if let Some((name, offset)) = text.rsplit_once("+0x")
        && !offset.is_empty()
        && offset.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return name.len();
    }
    let place = text.rsplit_once(" (").and_then(|(name, place)| {
        let (_, line) = place.strip_suffix(')')?.rsplit_once(':')?;
        (!line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit())).then_some(name.len())
    });
    place.unwrap_or(text.len())
}

/// The parts of a path, without the result type at the beginning of a template's name.
fn parts(text: &str) -> Vec<Part<'_>> {
    let pieces = split(text, "::");
    let parts: Vec<Part<'_>> = pieces.into_iter().map(part).collect();
    // Text before the last blank outside brackets belongs to the result type.
    let begin = parts.iter().rposition(|part| type_before(part.name) > 0).unwrap_or(0);
    let mut parts = parts[begin.min(parts.len())..].to_vec();
    if let Some(first) = parts.first_mut() {
        first.name = &first.name[type_before(first.name)..];
    }
    parts
}

/// Whether a name is neither of C++ nor of Rust: `net/http.(*conn).serve` of Go, `JS:~run /srv/x.js:10:3` of
/// JavaScript, `py::run:/srv/x.py` of CPython, `app.outer.<locals>.hot` of numba.
fn is_of_other_language(name: &str) -> bool {
    let is_alone = |end: usize| !name[..end - 1].ends_with(':') && !name[end..].starts_with(':');
    let mut colons = Scan::of(name).filter(|(end, depth)| *depth == 0 && name[..*end].ends_with(':'));
    [".(", ".<", "[go.shape."].iter().any(|part| name.contains(part)) || colons.any(|(end, _)| is_alone(end))
}

/// Whether a name is words, not code: `memcpy HtoD`, and `Memcpy HtoD (Pageable -> Device)` of Kineto.
fn is_in_words(name: &str) -> bool {
    const COPIES: [&str; 2] = ["memcpy ", "memset "];
    let begins = |with: &&str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    COPIES.iter().any(begins) || name.contains(' ') && !name.contains(['<', '(', '{'])
}

/// Length of a type before a name: `void f`. A conversion operator keeps its blank: `operator unsigned long`.
fn type_before(name: &str) -> usize {
    let end = name.find("operator").unwrap_or(name.len());
    if name.starts_with(BRACKETS) { 0 } else { name[..end].rfind(' ').map_or(0, |blank| blank + 1) }
}

fn part(piece: &str) -> Part<'_> {
    // `operator()` is a name, and so are brackets at the beginning.
    let whole = piece.trim();
    if whole.starts_with(BRACKETS) {
        return Part { name: whole, ..Part::default() };
    }
    let plain = whole.find(['<', '(']).unwrap_or(whole.len());
    let sign_at = whole[..plain].find("operator").map(|at| at + "operator".len());
    let name_at_least = sign_at.map_or(0, |at| at + operator_at(&whole[at..]));
    let rest = &whole[name_at_least..];
    let opens = rest.find(['<', '(']).map_or(whole.len(), |at| name_at_least + at);
    let (name, rest) = whole.split_at(opens);
    let closes = if rest.starts_with('<') { bracket_end(rest) } else { 0 };
    let (arguments, parameters) = rest.split_at(closes);
    let arguments = arguments.strip_prefix('<').map(|of| of.strip_suffix('>').unwrap_or(of));
    Part { name: name.trim_end(), arguments, parameters }
}

/// Length of an operator of brackets at the beginning of `rest`.
fn operator_at(rest: &str) -> usize {
    OPERATORS.iter().find(|signs| rest.starts_with(**signs)).map_or(0, |signs| signs.len())
}

/// End of the bracket that `text` begins with.
fn bracket_end(text: &str) -> usize {
    let mut scan = Scan::of(text);
    scan.find(|(_, depth)| *depth == 0).map_or(text.len(), |(end, _)| end)
}

/// The pieces of a text between separators outside of brackets, trimmed; none of an empty one.
fn split<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (end, depth) in Scan::of(text) {
        let ends = depth == 0 && text[..end].ends_with(separator) && end >= from + separator.len();
        if ends {
            pieces.push(text[from..end - separator.len()].trim());
            from = end;
        }
    }
    pieces.push(text[from..].trim());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The characters of a name with the bracket depth after each: (end of the character, depth). The signs of an operator
/// are one character.
struct Scan<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Scan<'t> {
    fn of(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0 }
    }
}

impl Iterator for Scan<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (before, rest) = self.text.split_at_checked(self.at)?;
        let signs = if before.ends_with("operator") { operator_at(rest) } else { 0 };
        if signs > 0 {
            self.at += signs;
            return Some((self.at, self.depth));
        }
        let character = rest.chars().next()?;
        match character {
            '<' | '(' | '[' | '{' => self.depth += 1,
            // An arrow closes nothing.
            '>' if before.ends_with('-') => {}
            '>' | ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.at += character.len_utf8();
        Some((self.at, self.depth))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        short_labels(names.into_iter().map(|name| (FrameKind::Native, name)))
    }

    fn short_name(name: &str) -> String {
        short_names([name]).concat()
    }

    #[track_caller]
    fn check(name: &str, expect: &str) {
        assert_eq!(short_name(name), expect);
    }

    #[track_caller]
    fn check_among(names_and_short: &[(&str, &str)]) {
        let short = short_names(names_and_short.iter().map(|(name, _)| *name));
        let expect: Vec<&str> = names_and_short.iter().map(|(_, short)| *short).collect();
        assert_eq!(short, expect);
    }

    #[test]
    fn a_short_name_is_the_path_of_the_function() {
        check("gomp_barrier_wait_end", "gomp_barrier_wait_end");
        check("void at::native::add<float, 4>(at::Tensor const&, long) const", "at::native::add");
        check("(anonymous namespace)::work(int)", "work");
        check("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back");
        check("at::add(at::Tensor const&) (Add.cpp:12)", "at::add (Add.cpp:12)");
        check("work::spin(long) [clone .cold]", "work::spin");
        check("gemm(float*)+0x20", "gemm+0x20");
        check("core::num::<impl a::Display for u32>::fmt", "core::num::<impl a::Display for u32>::fmt");
    }

    #[test]
    fn names_of_other_languages_stay_as_they_are() {
        for name in [
            "main.run.func1",
            "net/http.(*conn).serve",
            "main.Map[go.shape.struct { X int }]",
            "main.(*List[...]).Each-fm (list.go:12)",
            "JS:~run /srv/x.js:10:3",
            "LazyCompile:*(anonymous) /srv/x.js:1:2",
            "RegExp:a(b",
            "py::outer.<locals>.inner:/srv/my app.py",
            "py::<module>:/srv/x.py",
            "__main__.outer.<locals>.hot",
        ] {
            check(name, name);
        }
    }

    #[test]
    fn operators_keep_their_signs() {
        check("torch::Node::operator()(std::vector<at::Tensor, int>&&)", "torch::Node::operator()");
        check("bool operator< <int>(a::B<int> const&, int)", "operator<");
        check("std::ostream& std::operator<<(std::ostream&, char)", "std::operator<<");
        check("a::P<int>::operator->() const", "a::P::operator->");
        check("a::B::operator unsigned long() const", "a::B::operator unsigned long");
        check("operator new(unsigned long)", "operator new");
    }

    #[test]
    fn a_lambda_is_named_by_its_function() {
        check(
            "at::(anonymous namespace)::mul(at::Iter&)::{lambda()#2}::operator()() const",
            "at::mul {lambda}",
        );
        check(
            "a::f(int)::{lambda(int)#1}::operator()(int) const::{lambda()#2}::operator()() const",
            "a::f {lambda}",
        );
        check(CALLBACKS[0], "c10::function_ref::callback_fn<mul_kernel {lambda}>");
    }

    #[test]
    fn labels_of_other_kinds_stay() {
        let labels = [
            (FrameKind::Layer, "h.0 (Block)"),
            (FrameKind::Operator, "a::b(c)"),
            (FrameKind::Native, "h.0(int)"),
        ];
        assert_eq!(short_labels(labels), ["h.0 (Block)", "a::b(c)", "h.0"]);
    }

    #[test]
    fn kernels_keep_their_template_arguments() {
        let check =
            |name: &str, expect: &str| assert_eq!(short_labels([(FrameKind::GpuKernel, name)]), [expect]);
        check(
            "[gpu] void at::kernel<4, at::Add<float>, std::array<char*, 3ul> >(int)",
            "[gpu] at::kernel<4, at::Add, std::array>",
        );
        check(
            "[gpu] void cutlass::Kernel<cutlass_80_simt_sgemm_128x64>",
            "[gpu] cutlass::Kernel<cutlass_80_simt_sgemm_128x64>",
        );
        check("[gpu] vector_add", "[gpu] vector_add");
        check("[gpu] memcpy HtoD pageable", "[gpu] memcpy HtoD pageable");
        check("[gpu] Memcpy HtoD (Pageable -> Device)", "[gpu] Memcpy HtoD (Pageable -> Device)");
    }

    #[test]
    fn what_is_no_cpp_name_stays() {
        for name in [
            "<unknown>",
            "[unknown: no-mapping]",
            "libz.so+0x1f3a",
            "main",
            "",
            "<A<u8> as b::C>::drop",
            "a.b (c)",
        ] {
            check(name, if name == "a.b (c)" { "a.b" } else { name });
        }
    }

    const CALLBACKS: [&str; 3] = [
        "void c10::function_ref<void (char**, long)>::callback_fn<Loop2d<at::mul_kernel(at::Iter&)::{lambda()#2}::operator()() const::{lambda(float)#1}> >(long, char**)",
        "void c10::function_ref<void (char**, long)>::callback_fn<Loop2d<at::add_kernel(at::Iter&)::{lambda()#2}::operator()() const::{lambda(float)#1}> >(long, char**)",
        "void c10::function_ref<void (char**, long)>::callback_fn<Loop2d<at::add_kernel(at::Iter&)::{lambda()#2}::operator()() const::{lambda(double)#1}> >(long, char**)",
    ];

    #[test]
    fn equal_short_names_are_lengthened_until_they_differ() {
        check_among(&[("f(int)", "f(int)"), ("f(long)", "f(long)"), ("g(long)", "g")]);
        check_among(&[("a::v<int, x>::f()", "a::v::f<int>"), ("a::v<long, x>::f()", "a::v::f<long>")]);
        check_among(&[("v<x, a::B<int> >::f()", "v::f<a::B>"), ("v<x, c::D>::f()", "v::f<c::D>")]);
        check_among(&[("f", "f"), ("f(int)", "f(int)"), ("f()", "f()")]);
        check_among(&[
            ("a::f(int)::{lambda()#1}::operator()() const", "a::f {lambda#1}"),
            ("a::f(int)::{lambda()#2}::operator()() const", "a::f {lambda#2}"),
        ]);
        check_among(&[
            (CALLBACKS[0], "c10::function_ref::callback_fn<mul_kernel {lambda}>"),
            (CALLBACKS[1], "c10::function_ref::callback_fn<add_kernel {lambda}>"),
        ]);
        check_among(&[
            (CALLBACKS[1], "c10::function_ref::callback_fn<add_kernel {lambda}, … float>"),
            (CALLBACKS[2], "c10::function_ref::callback_fn<add_kernel {lambda}, … double>"),
            ("same(int)", "same"),
            ("same(int)", "same"),
        ]);
    }

    /// Names from libtorch_cpu.so: a loop for each type, represented by the number of a lambda.
    #[test]
    fn loops_of_one_kernel_differ_by_their_type() {
        let of = |number: u32, kind: &str| {
            let kernel = format!(
                "at::native::(anonymous namespace)::ne_kernel(at::TensorIteratorBase&)::{{lambda()#2}}::operator()() \
                 const::{{lambda()#{number}}}::operator()() const::"
            );
            let vector = format!("at::vec::DEFAULT::Vectorized<{kind}>");
            format!(
                "void c10::function_ref<void (char**, long const*, long, long)>::callback_fn<at::native::DEFAULT::\
                 VectorizedLoop2d<{kernel}{{lambda({kind}, {kind})#1}}, {kernel}{{lambda({vector}, {vector})#1}}> >\
                 (long, char**, long const*, long, long)"
            )
        };
        let (of_long, of_double, of_float) = (of(13, "long"), of(5, "double"), of(6, "float"));
        check_among(&[
            (&of_long, "c10::function_ref::callback_fn<ne_kernel {lambda}, … long>"),
            (&of_double, "c10::function_ref::callback_fn<ne_kernel {lambda}, … double>"),
            (&of_float, "c10::function_ref::callback_fn<ne_kernel {lambda}, … float>"),
        ]);
        check(&of_long, "c10::function_ref::callback_fn<ne_kernel {lambda}>");
    }

    proptest! {
        #[test]
        fn different_names_never_read_the_same(
            names in prop::collection::btree_set("(void )?(a|b<a>|b<int, c>|operator<|\\{lambda\\(\\)#[12]\\}|\\(anonymous namespace\\)|[<>(){}: ,é*]|::){1,7}(\\((int|a::b)?\\))?( const)?", 1..12),
        ) {
            let short = short_names(names.iter().map(String::as_str));
            let distinct: std::collections::BTreeSet<&String> = short.iter().collect();
            prop_assert_eq!(distinct.len(), names.len(), "{:?} {:?}", &names, &short);
        }

        #[test]
        fn any_text_has_a_short_name(text in ".{0,60}") {
            prop_assert!(!short_name(&text).is_empty() || text.is_empty());
        }
    }
}
