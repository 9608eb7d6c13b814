//! The notation of the catalogue's tables.
//!
//! Owns: the macro [`table`]. Because: a row should read like the declaration in the vendor's header. Does not: hold
//! rows.

/// A table of functions of one library with events of one family: `event, return => name since, … (Role Type, …) with
/// FIELDS;` for each function.
macro_rules! table {
    ($family:ident, $events:ident: $($event:expr, $returns:ident =>
        $($symbol:ident $(@ $major:literal)? $since:literal),+
        ($($role:ident $kind:ident $(($bytes:literal))?),*)
        $(with $fields:ident)?;)*) => {
        &[$($crate::row::Row::new(
            deepctx_events::Family::$family,
            deepctx_events::Event::$events($event),
            $crate::row::ReturnProbe::$returns,
            &[$($crate::row::Name {
                symbol: std::borrow::Cow::Borrowed(stringify!($symbol)),
                since: Some($crate::row::Version::literal(stringify!($since))),
                major: $crate::catalogue::table::optional!($($major)?),
            }),+],
            &[$((deepctx_events::Role::$role, $crate::abi::Type::$kind $(($bytes))?)),*],
            $crate::catalogue::table::fields!($($fields)?),
        )),*]
    };
}
macro_rules! optional {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}
macro_rules! fields {
    () => {
        &[]
    };
    ($fields:ident) => {
        $crate::catalogue::structs::$fields
    };
}
pub(super) use table;
pub(super) use {fields, optional};
