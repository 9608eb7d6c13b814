//! Where a thread keeps the pointer to its Python thread state.
//!
//! Owns: translating the getter functions of CPython and libc into a form that the walker in the kernel supports.
//! Because: the walker must find the thread state from the thread pointer alone, and cannot call functions of the
//! thread. Does not: find symbols.

use deepctx_common::python::thread_state;

use object::ReadRef;

use super::elf::{Elf, Symbol};
use super::trace::{Base, Calls, Function, Outcome, Value};
use crate::memory::TargetMemory;

/// Most keys of `pthread_key_create`, in glibc (1024) and musl (128).
const KEYS_MAX: u64 = 1024;

/// A slot: a kind of [`thread_state`] with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// A constant of [`thread_state`].
    pub(super) kind: u8,
    /// Its parameter.
    pub(super) parameter: i64,
}

impl Slot {
    /// No slot.
    pub(super) const NONE: Self = Self { kind: thread_state::NONE, parameter: 0 };

    /// The slot that a getter loads its result from, if the walker supports the form.
    fn of_loaded(value: &Value) -> Option<Self> {
        let Value::Sum(Base::Loaded(base, offset), 0) = value else { return None };
        match (&**base, *offset) {
            (Base::ThreadPointer, offset) => {
                Some(Self { kind: thread_state::THREAD_POINTER, parameter: offset })
            }
            (Base::Loaded(block, slot), low) => {
                let low = u32::try_from(low).ok()?;
                let (kind, high) = match &**block {
                    Base::ThreadPointer => (thread_state::SECOND_LEVEL, u32::try_from(*slot).ok()?),
                    Base::Loaded(dtv, 8) if **dtv == Base::ThreadPointer && slot % 16 == 0 => {
                        (thread_state::DTV, u32::try_from(slot / 16).ok()?)
                    }
                    Base::Loaded(..) => return None,
                };
                // Both halves are below 2^31 in practice; the walker splits them as unsigned numbers.
                Some(Self { kind, parameter: i64::from(high) << 32 | i64::from(low) })
            }
        }
    }

    /// The slot of a `pthread_key_t` in glibc since 2.1 (`struct pthread`: the first 32 keys at 0x310, then a table
    /// of blocks of 32 keys at 0x510; each key has a sequence number and a value). Used when libc's own getter cannot
    /// be followed.
    pub(super) fn of_glibc_key(key: u32) -> Option<Self> {
        match u64::from(key) {
            0..32 => {
                Some(Self { kind: thread_state::THREAD_POINTER, parameter: 0x310 + i64::from(key) * 16 + 8 })
            }
            32..KEYS_MAX => Some(Self {
                kind: thread_state::SECOND_LEVEL,
                parameter: (0x510 + i64::from(key / 32) * 8) << 32 | (i64::from(key % 32) * 16 + 8),
            }),
            _ => None,
        }
    }
}

/// The result of following a getter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolution<T> {
    /// It reads this.
    Found(T),
    /// Its module is not relocated yet: try again soon.
    NotYet,
    /// It could not be followed.
    Unknown,
}

impl<T> Resolution<T> {
    fn map<U>(self, to: impl FnOnce(T) -> U) -> Resolution<U> {
        match self {
            Self::Found(value) => Resolution::Found(to(value)),
            Self::NotYet => Resolution::NotYet,
            Self::Unknown => Resolution::Unknown,
        }
    }
}

/// Where `PyGILState_GetThisThreadState` reads the thread state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundState {
    /// A `Py_tss_t` at this address in the process.
    Tss(u64),
    /// The slot of this key.
    Key(u32),
    /// A TLS variable.
    Slot(Slot),
}

/// Follows `PyGILState_GetThisThreadState`. `runtime` is the range of `_PyRuntime` in the process.
pub(super) fn bound<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    getter: Symbol,
    bias: u64,
    memory: &dyn TargetMemory,
    runtime: std::ops::Range<u64>,
) -> Resolution<BoundState> {
    let Some(function) = function(elf, getter, bias, memory, Value::Unknown) else {
        return Resolution::Unknown;
    };
    match function.follow(Calls::End) {
        Outcome::Passed(Value::Constant(address)) if runtime.contains(&address) => {
            Resolution::Found(BoundState::Tss(address))
        }
        Outcome::Passed(Value::Constant(key @ 0..KEYS_MAX)) => Resolution::Found(BoundState::Key(key as u32)),
        Outcome::Unset => Resolution::NotYet,
        // Before the runtime is initialized, the getter returns NULL at once.
        Outcome::Returned(Value::Constant(_)) => Resolution::Unknown,
        _ => tls_variable(elf, getter, bias, memory).map(BoundState::Slot),
    }
}

/// The TLS variable that a getter like `_PyThreadState_GetCurrent` returns.
pub(super) fn tls_variable<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    getter: Symbol,
    bias: u64,
    memory: &dyn TargetMemory,
) -> Resolution<Slot> {
    let Some(function) = function(elf, getter, bias, memory, Value::Unknown) else {
        return Resolution::Unknown;
    };
    match function.follow(Calls::TlsGetAddr) {
        Outcome::Returned(value) => Slot::of_loaded(&value).map_or(Resolution::Unknown, Resolution::Found),
        Outcome::Unset => Resolution::NotYet,
        _ => Resolution::Unknown,
    }
}

/// The slot of `key`, by following the `pthread_getspecific` of this libc.
pub(super) fn of_key<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    getspecific: Symbol,
    bias: u64,
    memory: &dyn TargetMemory,
    key: u32,
) -> Option<Slot> {
    let key = Value::Constant(u64::from(key));
    match function(elf, getspecific, bias, memory, key)?.follow(Calls::End) {
        Outcome::Returned(value) => Slot::of_loaded(&value),
        _ => None,
    }
}

fn function<'a, 'm, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    symbol: Symbol,
    bias: u64,
    memory: &'m dyn TargetMemory,
    argument: Value,
) -> Option<Function<'a, 'm>> {
    // Getters are short: a symbol without a size is assumed to be no longer than any of them.
    let length = if symbol.size == 0 { 128 } else { symbol.size.min(1024) };
    let text = elf.bytes_at(symbol.address, length)?;
    Some(Function { text, address: symbol.address.wrapping_add(bias), memory, argument })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ProcessMemory;
    use deepctx_address_space::maps::{self, LineFilter};

    #[test]
    fn every_key_of_this_libc_has_the_assumed_slot() {
        let pid = std::process::id();
        let memory = ProcessMemory::open(pid).unwrap();
        let mappings = maps::read(pid, LineFilter::Executable).unwrap().mappings;
        let mut followed = 0;
        for mapping in mappings.iter().filter(|m| m.path().to_string_lossy().contains("/libc.so.6")) {
            let bytes = std::fs::read(mapping.path()).unwrap();
            let elf = Elf::parse(&*bytes).unwrap();
            let bias = elf.bias(mapping.begin.0, mapping.offset.0).unwrap();
            let getter = elf.exported("pthread_getspecific").unwrap();
            for key in 0..1024 {
                let slot = of_key(&elf, getter, bias, &memory, key);
                assert_eq!(slot, Slot::of_glibc_key(key), "key {key}");
                followed += 1;
            }
            assert_eq!(Slot::of_glibc_key(1024), None);
        }
        // Built for musl, there is no glibc to compare with.
        assert!(followed > 0 || cfg!(not(target_env = "gnu")));
    }
}
