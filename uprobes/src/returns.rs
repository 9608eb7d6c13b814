//! Probes on returns: which calls need one, and why.
//!
//! Owns: [`Return`]. Because: a probe on a return costs a second trap per call, so every row states whether it is worth it. Does
//! not: read what a return says.

macro_rules! returns {
    ($($variant:ident, $key:literal, $sentence:literal;)*) => {
        /// Whether the return of a call must be seen too, and why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Return { $(#[doc = $sentence] $variant,)* }

        impl Return {
            /// Stable name for machines, kebab-case.
            pub const fn key(self) -> &'static str {
                match self { $(Return::$variant => $key,)* }
            }

            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(Return::$variant => $sentence,)* }
            }
        }
    };
}

returns! {
    NotNeeded, "not-needed", "everything is known when the function is entered";
    Blocking, "blocking", "the host waits inside: the time until the return is what is asked for";
    OutPointer, "out-pointer", "the result is written behind a pointer, and is there when the function returns";
    Returned, "returned", "the result is what the function returns";
    Status, "status", "only the status that it returns tells whether it was done";
}

impl Return {
    /// True when a probe on the return is needed.
    pub const fn is_needed(self) -> bool {
        !matches!(self, Self::NotNeeded)
    }
}
