//! What every C function of every library has in common.
//!
//! Owns: the macro that defines functions, result codes, and the types of parameters. Because: hundreds of functions
//! must each check pointers, announce themselves to whoever subscribed, and return a code; written out by hand, some
//! would forget. Does not: know what any function does.

use std::ffi::{CStr, c_char, c_void};

use crate::link;

/// A result other than success; CUDA's driver, CUDA's runtime and HIP share these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const NOT_REGISTERED: Self = Self(713);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const ILLEGAL_STATE: Self = Self(401);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(crate) const CAPTURE_UNMATCHED: Self = Self(903);
    pub(crate) const CAPTURE_UNJOINED: Self = Self(904);
}

/// Result of a function.
pub(crate) type Status = Result<(), Code>;

/// The library of a function, as in callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Driver = 1,
    Runtime = 2,
    Tool = 100,
    Hip = 101,
    Nccl = 102,
}

/// One function, for subscribers.
#[derive(Debug)]
pub(crate) struct ApiFunction {
    pub(crate) domain: Domain,
    /// CUPTI's callback id; 0 for none.
    pub(crate) id: u32,
    /// NUL-terminated.
    pub(crate) name: &'static str,
}

mod ids {
    include!(concat!(env!("OUT_DIR"), "/cbids.rs"));
}
pub(crate) use ids::{DRIVER, RUNTIME};

impl ApiFunction {
    pub(crate) const fn new(domain: Domain, name: &'static str) -> Self {
        let id = match domain {
            Domain::Driver => number(DRIVER, name),
            Domain::Runtime => number(RUNTIME, name),
            _ => 0,
        };
        Self { domain, id, name }
    }
}

/// The number of a NUL-terminated name.
const fn number(table: &[(&str, u32)], name: &str) -> u32 {
    let mut i = 0;
    while i < table.len() {
        let (known, wanted) = (table[i].0.as_bytes(), name.as_bytes());
        if known.len() + 1 == wanted.len() {
            let mut at = 0;
            while at < known.len() && known[at] == wanted[at] {
                at += 1;
            }
            if at == known.len() {
                return table[i].1;
            }
        }
        i += 1;
    }
    0
}

/// True for names whose default stream is per thread.
pub(crate) const fn is_per_thread(name: &str) -> bool {
    ends_with(name, b"_ptsz\0") || ends_with(name, b"_ptds\0") || ends_with(name, b"_spt\0")
}

const fn ends_with(name: &str, end: &[u8]) -> bool {
    let name = name.as_bytes();
    if name.len() < end.len() {
        return false;
    }
    let mut i = 0;
    while i < end.len() && name[name.len() - end.len() + i] == end[i] {
        i += 1;
    }
    i == end.len()
}

/// Defines C functions: `DOMAIN; fn name | other_name(argument: Type, …) { … } …`. The body returns a [`Status`].
/// `PER_THREAD` is true in functions whose default stream is per thread.
macro_rules! api {
    ($domain:ident; $($(#[$meta:meta])* fn $($name:ident)|+ ($($arguments:tt)*) $body:block)*) => {
        $($crate::api::api!(@row $domain [$($name)+] ($($arguments)*) $body);)*
    };
    (@row $domain:ident [$($name:ident)+] $arguments:tt $body:block) => {
        $($crate::api::api!(@one $domain $name $arguments $body);)+
    };
    (@one $domain:ident $name:ident ($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> i32 {
            /// The parameters that callbacks see, in declaration order.
            #[repr(C)]
            struct AnnouncedParameters { $($argument: $kind),* }
            const POINT: $crate::api::ApiFunction = $crate::api::ApiFunction::new(
                $crate::api::Domain::$domain,
                concat!(stringify!($name), "\0"),
            );
            #[allow(dead_code, reason = "not every function has a stream")]
            const PER_THREAD: bool = $crate::api::is_per_thread(POINT.name);
            let parameters = AnnouncedParameters { $($argument),* };
            $crate::link::call(&POINT, (&raw const parameters).cast(), || $body)
        }
    };
}
pub(crate) use api;

/// An unused pointer or handle.
pub(crate) type Raw = usize;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

impl From<Dim3> for [u32; 3] {
    fn from(dim: Dim3) -> Self {
        [dim.x, dim.y, dim.z]
    }
}

/// `cudaExtent`, `hipExtent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaPitchedPtr`, `hipPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PitchedPointer {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// An output pointer. As with the real libraries, callers promise that it is null or valid.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the result; a null pointer is an error.
    pub(crate) fn put(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and callers promise that it points to a `T` to be written.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result unless the pointer is null.
    pub(crate) fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }

    /// Wraps an address for which the callers' promise must hold.
    pub(crate) const fn at(address: *mut T) -> Self {
        Self(address)
    }

    /// Writes one of several results.
    pub(crate) fn put_at(self, index: usize, value: T) -> Status {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: callers promise as many elements as they say.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// The same address, for a result of another width.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// True when the caller wants no result.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The current value.
    pub(crate) fn get(self) -> Result<T, Code>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// An input pointer. Callers promise that it is null or valid.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// A pointer from within a structure.
    pub(crate) const fn at(address: *const T) -> Self {
        Self(address)
    }

    /// The value that it points to.
    pub(crate) fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and callers promise that it points to a `T`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// As many elements as the caller states.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>, Code> {
        if count > 0 && self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: callers promise `count` elements.
        Ok((0..count).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect())
    }
}

impl In<c_char> {
    /// A C string.
    pub(crate) fn text(self) -> Result<&'static CStr, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and callers promise a NUL-terminated string that outlives the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// A function without a result that gets the caller's pointer.
pub(crate) type HostFunction = extern "C" fn(*mut c_void);

/// The numeric result of a status.
pub(crate) fn code_of(status: Status) -> i32 {
    status.err().map_or(0, |Code(code)| code)
}

/// Whether calls have correlation ids. HIP's do, although nothing can subscribe to them here.
pub(crate) const fn is_announced(domain: Domain) -> bool {
    matches!(domain, Domain::Driver | Domain::Runtime | Domain::Hip)
}

const _: () = assert!(link::DOMAINS > Domain::Runtime as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_numbers_of_the_headers() {
        let check = |domain, name, number| assert_eq!(ApiFunction::new(domain, name).id, number, "{name}");
        check(Domain::Driver, "cuLaunchKernel\0", 307);
        check(Domain::Driver, "cuLaunchKernel_ptsz\0", 442);
        check(Domain::Runtime, "cudaLaunchKernel\0", 211);
        check(Domain::Driver, "cuNoSuchFunction\0", 0);
        check(Domain::Hip, "cuLaunchKernel\0", 0);
    }

    #[test]
    fn the_name_tells_which_default_stream_is_meant() {
        assert!(is_per_thread("cuMemcpyHtoD_v2_ptds\0"));
        assert!(is_per_thread("cuLaunchKernel_ptsz\0"));
        assert!(is_per_thread("hipLaunchKernel_spt\0"));
        assert!(!is_per_thread("cuLaunchKernel\0"));
    }
}
