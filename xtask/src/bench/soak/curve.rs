//! Curves of a run as a picture.
//!
//! Owns: its form. Because: a curve shows growth at once. Does not: choose what is measured.

use std::fmt::Write as _;

use super::reading::Reading;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 150.0;
/// Left margin for numbers.
const LEFT: f64 = 60.0;
/// Space above each curve for its name.
const TOP: f64 = 28.0;

type Curve = (&'static str, fn(&Reading) -> f64);

/// The curves, one below the other, each starting at 0.
const CURVES: [Curve; 5] = [
    ("Memory of the profiler, resident and locked, MiB", Reading::memory_mib),
    ("Memory of its workers, MiB", |reading| reading.workers_mib),
    ("Open descriptors", |reading| reading.descriptors),
    ("Files of the profile", |reading| reading.files),
    ("Fullest kernel table, ‰ of its capacity", |reading| reading.fullest() * 1000.0),
];

/// Draws the curves.
pub(super) fn svg(readings: &[Reading]) -> String {
    let end = readings.last().map_or(1.0, |reading| reading.at.as_secs_f64().max(1.0));
    let height = CURVES.len() as f64 * (HEIGHT + TOP) + TOP;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        WIDTH + LEFT + 10.0
    );
    for (n, (name, of)) in CURVES.iter().enumerate() {
        let top = n as f64 * (HEIGHT + TOP) + TOP;
        let most = readings.iter().map(of).fold(1.0, f64::max);
        let points: String = readings.iter().fold(String::new(), |mut points, reading| {
            let x = LEFT + reading.at.as_secs_f64() / end * WIDTH;
            let y = top + HEIGHT - of(reading) / most * HEIGHT;
            // Writing to a string cannot fail.
            let _ = write!(points, "{x:.1},{y:.1} ");
            points
        });
        let bottom = top + HEIGHT;
        let _ = write!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.0}\">{name}</text>\n\
             <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most:.0}</text>\n\
             <path d=\"M{LEFT} {top}V{bottom}H{}\" fill=\"none\" stroke=\"#888\"/>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"1.5\"/>\n",
            top - 8.0,
            LEFT - 6.0,
            top + 10.0,
            LEFT + WIDTH,
            points.trim_end()
        );
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{:.1} h</text>\n</svg>\n",
        LEFT + WIDTH,
        height - 8.0,
        end / 3600.0
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::tables::Fill;
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_curve_has_a_point_for_each_reading() {
        let reading = |seconds, memory| Reading {
            at: Duration::from_secs(seconds),
            resident_mib: memory,
            locked_mib: 10.0,
            workers_mib: 5.0,
            descriptors: 40.0,
            threads: 9.0,
            files: 3.0,
            profile_mib: 1.0,
            tables: Fill::new(),
        };
        let picture = svg(&[reading(1800, 30.0), reading(3600, 90.0)]);
        assert_eq!(picture.matches("<polyline").count(), CURVES.len());
        // 40 and 100 MiB of 100: at three fifths from the top, and at the top.
        assert!(picture.contains(&format!("420.0,{:.1} 780.0,{TOP:.1}", TOP + HEIGHT * 0.6)), "{picture}");
        assert!(picture.contains(">1.0 h<"), "{picture}");
    }
}
