//! Metrics: choosing the metric of the view.
//!
//! Owns: the menu's selection, and the switch to device time. Because: a profile has up to dozens of metrics, and
//! pressing a key until the right one comes is guesswork. Does not: draw.

use crate::keys::Action;
use crate::model::{Mode, Model};

/// Opens the menu on the shown metric.
pub(super) fn open(model: &mut Model) {
    let shown = model.request.selection.metric;
    match model.metrics().iter().position(|it| it.metric == shown) {
        Some(at) => model.mode = Mode::Metrics(at),
        None if model.metrics().is_empty() => model.status = Some("there are no values yet"),
        None => model.mode = Mode::Metrics(0),
    }
}

/// Moves the selection, wrapping at the ends.
pub(super) fn navigate(model: &mut Model, action: Action) {
    let count = model.metrics().len();
    if let Mode::Metrics(at) = &mut model.mode {
        *at = match action {
            Action::Up => (*at + count).saturating_sub(1) % count.max(1),
            Action::Down => (*at + 1) % count.max(1),
            _ => *at,
        };
    }
}

/// Shows the selected metric.
pub(super) fn accept(model: &mut Model, at: usize) {
    model.mode = Mode::Browse;
    model.setup.follows_device = false;
    if let Some(metric) = model.metrics().get(at).map(|it| it.metric) {
        model.request.selection.metric = metric;
    }
}

/// Shows the time of a device once it was busy, unless the user chose a metric.
pub(super) fn follow_device(model: &mut Model) {
    let device = model.snapshot.as_ref().and_then(|snapshot| snapshot.device_metric());
    if let Some(metric) = device.filter(|_| model.setup.follows_device) {
        model.setup.follows_device = false;
        model.request.selection.metric = metric;
        model.status = Some("a device is busy: this is its time, m chooses another metric");
    }
}
