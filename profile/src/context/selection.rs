//! Selections: which part of a profile a reader wants to see: `--metric`, `--view`, `--group-by`, `--lines`.
//!
//! Owns: [`Selection`], and which frames it shows. Because: every export, report and screen must fold the same frames
//! away. Does not: fold them; see [`crate::context`] for a profile, [`crate::view`] for a screen.
//!
//! A stack is transformed frame by frame: each is shown as it is, shown without a detail that was not requested (its
//! line), or folded into its caller. So the remaining frames keep their order and form a stack again:
//!
//! ```text
//!   stored          full            python          native
//!   process         process         process         process
//!   _start          _start          ·               _start
//!   eval            ·               ·               eval        the interpreter's own frame
//!   main.py:main    main.py:main    main.py:main    ·
//!   call_ufunc      call_ufunc      ·               call_ufunc
//!   eval            ·               ·               eval
//!   main.py:add     main.py:add     main.py:add     ·           a native function called it
//!   memmove         memmove         ·               memmove
//! ```
//!
//! | view | shows |
//! |---|---|
//! | `full` | every frame: native frames are between the Python frames that called them and those that they called. The interpreter's own frames and a framework's dispatch show only when asked for, since the Python frame or operator beside each represents them |
//! | `python` | Python functions and operators, each below the one that called it, however much native code was between |
//! | `native` | native and kernel code, the interpreter's own frames and dispatch among it, and no Python |
//!
//! When grouped by device or stream, device work moves below its device or stream, which is below its process;
//! everything else stays where it is. Processes, GPU work, and the stand-ins for entries that the tables refused show
//! in every view. The value of a folded frame goes to the nearest caller that shows, so the totals of all metrics are
//! the same in every view.

use std::str::FromStr;

use crate::frame::{Frame, FrameKind, Origin, Role};
use crate::metric::Metric;

/// Which languages are shown. Values of hidden frames go to the nearest caller that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum View {
    /// Everything.
    #[default]
    Full,
    /// Python functions and operators, and what runs on GPUs.
    Python,
    /// Native and kernel code, and what runs on GPUs.
    Native,
}

impl View {
    /// Every view.
    pub const ALL: &'static [View] = &[View::Full, View::Python, View::Native];

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            View::Full => "full",
            View::Python => "python",
            View::Native => "native",
        }
    }
}

/// No view has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown view `{0}`: expected full, python or native")]
pub struct UnknownView(pub String);

impl FromStr for View {
    type Err = UnknownView;

    fn from_str(name: &str) -> Result<Self, UnknownView> {
        View::ALL.iter().copied().find(|view| view.name() == name).ok_or_else(|| UnknownView(name.to_owned()))
    }
}

/// The outermost boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// Processes; their threads are joined.
    #[default]
    Process,
    /// Processes, and in them threads.
    Thread,
    /// Processes, and in them devices for the work that ran on them.
    Device,
    /// Processes, and in them streams of devices for the work that ran in them.
    Stream,
}

impl GroupBy {
    /// Every choice.
    pub const ALL: &'static [GroupBy] =
        &[GroupBy::Process, GroupBy::Thread, GroupBy::Device, GroupBy::Stream];

    /// Name as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            GroupBy::Process => "process",
            GroupBy::Thread => "thread",
            GroupBy::Device => "device",
            GroupBy::Stream => "stream",
        }
    }
}

/// What to show of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Which values.
    pub metric: Metric,
    /// Which languages.
    pub view: View,
    /// Whether lines of one function are distinguished.
    pub lines: bool,
    /// The outermost boxes.
    pub group_by: GroupBy,
    /// Whether the full view shows the interpreter's internal frames and a framework's dispatch beside the Python
    /// frames and operators that represent them. The native view always shows them.
    pub interpreter: bool,
}

impl Selection {
    /// The full view of one metric: functions by process, without the interpreter's internal frames.
    pub const fn of(metric: Metric) -> Self {
        Selection { metric, view: View::Full, lines: false, group_by: GroupBy::Process, interpreter: false }
    }
}

impl Selection {
    /// The frame as this selection shows it; `None` if it is folded into its caller.
    pub fn shown(&self, frame: &Frame) -> Option<Frame> {
        self.shows(frame).then(|| if self.lines { *frame } else { without_line(*frame) })
    }

    /// Whether a frame is shown; otherwise its values go to its caller's.
    pub fn shows(&self, frame: &Frame) -> bool {
        let native = self.view != View::Python;
        let python = self.view != View::Native;
        match frame {
            Frame::Root | Frame::Stream { .. } => false,
            Frame::Thread { .. } => self.group_by == GroupBy::Thread,
            Frame::Python { role, .. } => python && (*role == Role::Code || self.interpreter),
            Frame::Operator { .. }
            | Frame::Range { .. }
            | Frame::Layer { .. }
            | Frame::Unresolved { origin: Origin::Python, .. } => python,
            frame if frame.role() != Role::Code => native && (self.interpreter || !python),
            Frame::Native { .. }
            | Frame::NativeUnnamed { .. }
            | Frame::Kernel { .. }
            | Frame::KernelUnnamed { .. }
            | Frame::Unresolved { origin: Origin::Native | Origin::Kernel, .. } => native,
            Frame::Process { .. }
            | Frame::GpuApi { .. }
            | Frame::GpuKernel { .. }
            | Frame::Instruction { .. }
            | Frame::Resource { .. }
            | Frame::Wait { .. }
            | Frame::Unresolved { origin: Origin::Gpu, .. }
            | Frame::TreeFull
            | Frame::TableFull => true,
        }
    }

    /// The frame to insert below the process when devices or streams are distinguished.
    pub(crate) fn group(&self, frame: &Frame) -> Option<Frame> {
        match (self.group_by, frame) {
            (GroupBy::Device, &Frame::Stream { device, name, .. }) => {
                Some(Frame::Stream { device, stream: None, name })
            }
            (GroupBy::Stream, stream @ Frame::Stream { .. }) => Some(*stream),
            _ => None,
        }
    }

    /// A stack as this selection shows it, root first.
    pub fn stack(&self, frames: impl IntoIterator<Item = Frame>) -> impl Iterator<Item = Frame> {
        let mut shown = Vec::new();
        for frame in frames {
            match self.group(&frame) {
                Some(group) => shown.insert(below_process(shown.iter().map(Frame::kind)), group),
                None => shown.extend(self.shown(&frame)),
            }
        }
        shown.into_iter()
    }
}

/// Where in a stack the frame of its device is inserted: below its process, if there is one.
pub(crate) fn below_process(mut kinds: impl Iterator<Item = FrameKind>) -> usize {
    usize::from(kinds.next() == Some(FrameKind::Process))
}

fn without_line(mut frame: Frame) -> Frame {
    if let Frame::Python { line, .. } | Frame::Native { line, .. } = &mut frame {
        *line = None;
    }
    frame
}
