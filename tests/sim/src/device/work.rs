//! What a device can be asked to do.
//!
//! Owns: kernels, copies, fills, functions of the host. Because: streams, graphs and records of activities speak of the
//! same things. Does not: know when any of it happens.

use std::ffi::{CStr, c_void};

use super::timing;
use crate::api::HostFunction;

/// The engine that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    None,
    Compute,
    CopyIn,
    CopyOut,
}

/// CUPTI's numbers for kinds of memory.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    #[default]
    Unknown = 0,
    Pageable = 1,
    Pinned = 2,
    Device = 3,
    Managed = 5,
}

impl MemoryKind {
    pub(crate) const fn is_host(self) -> bool {
        matches!(self, Self::Pageable | Self::Pinned)
    }
}

/// A box of bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) address: u64,
    /// Bytes per line, and per plane.
    pub(crate) pitch: usize,
    pub(crate) plane: usize,
}

/// Width in bytes, height in lines, depth in planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize, pub(crate) usize, pub(crate) usize);

impl Size {
    pub(crate) const fn bytes(self) -> u64 {
        (self.0 as u64).saturating_mul(self.1 as u64).saturating_mul(self.2 as u64)
    }
}

/// A kernel launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// Mangled, as in the module.
    pub(crate) name: &'static CStr,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) registers: u32,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) code: Code,
}

/// Location of a kernel's instructions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Code {
    /// CUPTI's id of the image.
    pub(crate) crc: u64,
    /// Bytes of the kernel's instructions.
    pub(crate) bytes: u32,
    /// Its index among the symbols of the image.
    pub(crate) symbol: u32,
}

/// A copy of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) from: Region,
    pub(crate) to: Region,
    pub(crate) size: Size,
    pub(crate) from_place: MemoryKind,
    pub(crate) to_place: MemoryKind,
    pub(crate) is_async: bool,
    /// Another device as the destination.
    pub(crate) peer: Option<u32>,
}

/// A repeated pattern of one, two or four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) to: Region,
    /// In bytes.
    pub(crate) size: Size,
    pub(crate) value: u32,
    pub(crate) value_bytes: usize,
    pub(crate) place: MemoryKind,
    pub(crate) is_async: bool,
}

/// A host function called in stream order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    Plain(HostFunction, usize),
    /// For `cuStreamAddCallback`: stream, status, pointer.
    WithStatus(extern "C" fn(usize, i32, *mut c_void), usize, usize),
}

impl HostCall {
    pub(crate) fn run(&self) {
        match *self {
            Self::Plain(function, data) => function(std::ptr::with_exposed_provenance_mut(data)),
            Self::WithStatus(function, stream, data) => {
                function(stream, 0, std::ptr::with_exposed_provenance_mut(data));
            }
        }
    }
}

/// One piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
    Host(HostCall),
    /// An event, or a join of several ends: takes no time.
    Marker,
    /// The end of a graph.
    GraphEnd,
    /// A memory write in stream order: address, value, bytes.
    Write(u64, u64, usize),
}

impl Work {
    pub(crate) const fn engine(&self) -> Engine {
        match self {
            Self::Kernel(_) | Self::Fill(_) => Engine::Compute,
            Self::Copy(copy) if copy.to_place.is_host() => Engine::CopyOut,
            Self::Copy(_) => Engine::CopyIn,
            Self::Host(_) | Self::Marker | Self::GraphEnd | Self::Write(..) => Engine::None,
        }
    }

    pub(crate) fn duration_ns(&self) -> u64 {
        match self {
            Self::Kernel(kernel) => timing::kernel_ns(kernel.name.to_str().unwrap_or("")),
            Self::Copy(copy) => {
                let speed = match (copy.from_place, copy.to_place) {
                    (MemoryKind::Pageable, _) | (_, MemoryKind::Pageable) => timing::PAGEABLE,
                    (MemoryKind::Pinned, _) | (_, MemoryKind::Pinned) => timing::PINNED,
                    _ => timing::ON_DEVICE,
                };
                timing::transfer_ns(copy.size.bytes(), speed)
            }
            Self::Fill(fill) => timing::transfer_ns(fill.size.bytes(), timing::ON_DEVICE),
            Self::Host(_) | Self::Marker | Self::GraphEnd | Self::Write(..) => 0,
        }
    }

    /// Moves the bytes. Callers of the C interface promise that the memory stays valid until then.
    pub(crate) fn carry_out(&self) {
        match self {
            Self::Copy(copy) => copy.size.each_line(|plane, line| {
                let from = copy.from.line(plane, line).cast_const();
                // SAFETY: promised by the caller of the C interface; `copy` allows both to overlap.
                unsafe { std::ptr::copy(from, copy.to.line(plane, line), copy.size.0) };
            }),
            Self::Fill(fill) => fill.size.each_line(|plane, line| {
                let to = fill.to.line(plane, line);
                for at in (0..fill.size.0).step_by(fill.value_bytes.max(1)) {
                    let count = fill.value_bytes.min(fill.size.0 - at);
                    let bytes = fill.value.to_le_bytes();
                    // SAFETY: promised by the caller of the C interface; `count` is at most 4.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(at), count.min(4)) };
                }
            }),
            Self::Write(address, value, bytes) => {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(*address as usize);
                // SAFETY: promised by the caller of the C interface.
                unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), to, (*bytes).min(8)) };
            }
            Self::Kernel(_) | Self::Host(_) | Self::Marker | Self::GraphEnd => {}
        }
    }
}

impl Size {
    fn each_line(self, mut each: impl FnMut(usize, usize)) {
        if self.0 == 0 {
            return;
        }
        for plane in 0..self.2 {
            for line in 0..self.1 {
                each(plane, line);
            }
        }
    }
}

impl Region {
    /// Memory without lines.
    pub(crate) const fn flat(address: u64) -> Self {
        Self { address, pitch: 0, plane: 0 }
    }

    fn line(&self, plane: usize, line: usize) -> *mut u8 {
        let offset = plane.wrapping_mul(self.plane).wrapping_add(line.wrapping_mul(self.pitch));
        std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize).wrapping_add(offset)
    }
}
