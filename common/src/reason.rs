//! Reasons: the single form in which every "no, because …" is declared.
//!
//! Owns: [`Reason`], its [`Class`] and the macro [`reasons!`](crate::reasons). Because: users look a key up, so it must
//! be unique and documented. `cargo xtask tidy` checks both, because all declarations look alike: it reads them from
//! the sources and writes the tables of `docs/loss.md`. Does not: count, print, or describe errors.

use core::fmt;

/// Consequence of a reason for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A record is lost: nothing of it is in the profile.
    Loss,
    /// A record counts, but a part of its stack, of its values or of the conclusions from it is missing.
    Gap,
    /// An address or a function has no name.
    Unnamed,
    /// A function gets no probe.
    Unprobed,
    /// A file, a table or the memory of a process could not be read.
    Unread,
    /// Nothing is missing: a normal outcome, or a count, in a list whose other entries are reasons.
    Normal,
}

/// Why something is missing. Declared by [`reasons!`](crate::reasons), and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Reason {
    /// Stable name for machines, kebab-case, unique in the project. Stored in profiles.
    pub key: &'static str,
    /// One sentence for people, without a full stop.
    pub sentence: &'static str,
    /// Consequence for the data.
    pub class: Class,
    /// The page of `docs/` with more detail.
    pub page: &'static str,
    /// What helps, or when the reason is expected.
    pub helps: Option<&'static str>,
}

impl Reason {
    /// For the expansion of [`reasons!`](crate::reasons) only.
    #[doc(hidden)]
    pub const fn declare(
        key: &'static str,
        sentence: &'static str,
        class: Class,
        page: &'static str,
        helps: Option<&'static str>,
    ) -> Self {
        Self { key, sentence, class, page, helps }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.sentence)
    }
}

/// Declares reasons: as constants, as an enum (numbered or not), or as a method of an enum with payloads.
///
/// The header states the class and the page of all reasons that follow. A reason may override either, and may say what
/// helps: `"key", "sentence", class Loss, page "gpu.md", helps "more memory"`, in this order.
///
/// ```
/// use deepctx_common::reasons;
///
/// reasons! {
///     class Gap, page "loss.md";
///     /// A constant, `&'static Reason`.
///     pub const LATE = "late", "records arrived late", class Loss;
/// }
///
/// reasons! {
///     class Unread, page "loss.md";
///     /// An enum; with `: u8`, each variant has its number: `NotElf = 0, "not-elf", …`.
///     pub enum NoFile {
///         NotElf, "not-elf", "the file is not an ELF file";
///     }
/// }
///
/// /// Variants with payloads.
/// pub enum NoTable {
///     TooLarge(u64),
///     File(NoFile),
/// }
///
/// impl NoTable {
///     reasons! {
///         class Unread, page "unwinding.md";
///         /// The reason; those of others are passed on.
///         pub fn reason(self) {
///             Self::TooLarge(_) => "table-too-large", "the table is too large", helps "nothing";
///         } or {
///             Self::File(file) => file.reason();
///         }
///     }
/// }
///
/// assert_eq!((LATE.key, NoFile::NotElf.reason().page), ("late", "loss.md"));
/// assert_eq!(NoTable::File(NoFile::NotElf).reason(), NoFile::NotElf.reason());
/// assert_eq!(NoTable::TooLarge(7).reason().helps, Some("nothing"));
/// ```
#[macro_export]
macro_rules! reasons {
    (@class $class:ident) => { $crate::reason::Class::$class };
    (@class $class:ident $own:ident) => { $crate::reason::Class::$own };
    (@page $page:literal) => { $page };
    (@page $page:literal $own:literal) => { $own };
    (@helps) => { None };
    (@helps $helps:literal) => { Some($helps) };
    (@one ($($class:ident)+) ($($page:literal)+) ($($helps:literal)?) $key:literal $sentence:literal) => {
        const {
            &$crate::reason::Reason::declare(
                $key,
                $sentence,
                $crate::reasons!(@class $($class)+),
                $crate::reasons!(@page $($page)+),
                $crate::reasons!(@helps $($helps)?),
            )
        }
    };

    // Items that all enums get.
    (@enum $vis:vis $name:ident { $($variant:ident => $one:expr;)* }) => {
        impl $name {
            /// Every value, in the order of declaration.
            $vis const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Its key, sentence, class and page.
            $vis const fn reason(self) -> &'static $crate::reason::Reason {
                match self { $($name::$variant => $one,)* }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.reason().sentence)
            }
        }
    };

    // Constants.
    (class $class:ident, page $page:literal;
     $($(#[$doc:meta])* $vis:vis const $name:ident = $key:literal, $sentence:literal
        $(, class $own:ident)? $(, page $place:literal)? $(, helps $helps:literal)?;)+) => {
        $(
            $(#[$doc])*
            #[doc = ""]
            #[doc = $sentence]
            $vis const $name: &$crate::reason::Reason = $crate::reasons!(
                @one ($class $($own)?) ($page $($place)?) ($($helps)?) $key $sentence
            );
        )+
    };

    // An enum with numbers.
    (class $class:ident, page $page:literal;
     $(#[$doc:meta])* $vis:vis enum $name:ident: u8 {
        $($(#[$about:meta])* $variant:ident = $n:literal, $key:literal, $sentence:literal
            $(, class $own:ident)? $(, page $place:literal)? $(, helps $helps:literal)?;)+
     }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[$about])* #[doc = ""] #[doc = $sentence] $variant = $n,)+ }

        impl $name {
            /// The reason with this number, if there is one.
            $vis const fn from_number(n: u8) -> Option<Self> {
                match n { $($n => Some($name::$variant),)+ _ => None }
            }

            /// Stable name for machines, kebab-case.
            $vis const fn key(self) -> &'static str {
                self.reason().key
            }

            /// One sentence for people.
            $vis const fn sentence(self) -> &'static str {
                self.reason().sentence
            }
        }

        $crate::reasons!(@enum $vis $name {$(
            $variant => $crate::reasons!(
                @one ($class $($own)?) ($page $($place)?) ($($helps)?) $key $sentence
            );
        )+});
    };

    // An enum without numbers.
    (class $class:ident, page $page:literal;
     $(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $variant:ident, $key:literal, $sentence:literal
            $(, class $own:ident)? $(, page $place:literal)? $(, helps $helps:literal)?;)+
     }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[$about])* #[doc = ""] #[doc = $sentence] $variant,)+ }

        $crate::reasons!(@enum $vis $name {$(
            $variant => $crate::reasons!(
                @one ($class $($own)?) ($page $($place)?) ($($helps)?) $key $sentence
            );
        )+});
    };

    // A method of an enum with payloads.
    (class $class:ident, page $page:literal;
     $(#[$doc:meta])* $vis:vis fn $name:ident(self) {
        $($pattern:pat => $key:literal, $sentence:literal
            $(, class $own:ident)? $(, page $place:literal)? $(, helps $helps:literal)?;)+
     } $(or { $($others:pat => $given:expr;)+ })?) => {
        $(#[$doc])*
        $vis const fn $name(&self) -> &'static $crate::reason::Reason {
            match self {
                $($pattern => $crate::reasons!(
                    @one ($class $($own)?) ($page $($place)?) ($($helps)?) $key $sentence
                ),)+
                $($($others => $given,)+)?
            }
        }
    };
}
