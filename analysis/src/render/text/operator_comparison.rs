//! Text of the operators of two profiles.
//!
//! Owns: [`write()`]. Because: readers compare the figures of one operator down a column, so its sides are on
//! consecutive lines. Does not: compute; JSON has every row.

use std::io::{self, Write};

use deepctx_profile::units::{Bytes, Nanos};

use super::{more, without_middle};
use crate::diff::{
    DeviceMemory, MemorySide, OperatorComparison, OperatorFigures, OperatorMatch, OperatorRow,
};

/// Widest names of an operator.
const NAME_WIDTH: usize = 60;

/// Writes each operator on two lines, before and after.
///
/// # Errors
/// Those of `out`.
pub fn write(compared: &OperatorComparison, out: &mut dyn Write) -> io::Result<()> {
    let metric = compared.metric;
    writeln!(out, "operators by share of {metric}; what runs in several is that of the innermost one")?;
    writeln!(out, "\n{:7}{HEAD}  operator", "")?;
    for row in &compared.operators.rows {
        operator(row, out)?;
    }
    more(
        compared.operators.rows.len() + compared.operators.left_out,
        compared.operators.rows.len(),
        "operator",
        out,
    )?;
    for (title, [before, after]) in
        [("all operators", [compared.before, compared.after]), ("in no operator", compared.outside)]
    {
        writeln!(out, "before {}  {title}", figures(None, &before))?;
        writeln!(out, "after  {}", figures(None, &after))?;
    }
    memory(&compared.memory, out)?;
    out.flush()
}

const HEAD: &str =
    "  share     calls   kernels  per call  per kernel    device      host  allocations     bytes";

fn operator(row: &OperatorRow, out: &mut dyn Write) -> io::Result<()> {
    let pass = if row.backward { " [backward]" } else { "" };
    let names = |names: &[String]| match row.matched {
        OperatorMatch::Family => format!(" ({})", names.join(", ")),
        OperatorMatch::Name | OperatorMatch::OneSided => String::new(),
    };
    for (title, side) in [("before", &row.before), ("after", &row.after)] {
        let text = match side {
            Some(side) => figures(Some(side.share_percent), &side.figures),
            None => figures(None, &OperatorFigures::default()),
        };
        let of_side = side.as_ref().map_or_else(String::new, |side| names(&side.names));
        // The first line has the name of the operator; both have its name on that side.
        let name = if title == "before" { format!("{}{pass}{of_side}", row.operator) } else { of_side };
        let line = format!("{title:6} {text}  {}", without_middle(name.trim_start(), NAME_WIDTH));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn figures(share: Option<f64>, of: &OperatorFigures) -> String {
    let unknown = || "–".to_owned();
    let count = |value: Option<u64>| value.map_or_else(unknown, |value| value.to_string());
    let time = |value: Option<u64>| value.map_or_else(unknown, |value| Nanos(value).to_string());
    let share = share.map_or_else(unknown, |share| format!("{share:.1}%"));
    let per_call = of.kernels_per_call.map_or_else(unknown, |value| format!("{value:.1}"));
    let per_kernel = time(of.ns_per_kernel.map(|value| value as u64));
    let bytes = of.allocated_bytes.map_or_else(unknown, |value| Bytes(value).to_string());
    let (calls, kernels, allocations) = (count(of.calls), count(of.kernels), count(of.allocations));
    let (device, host) = (time(of.gpu_ns), time(of.host_ns));
    format!(
        "{share:>7} {calls:>9} {kernels:>9} {per_call:>9} {per_kernel:>11} {device:>9} {host:>9} {allocations:>12} {bytes:>9}"
    )
}

fn memory(devices: &[DeviceMemory], out: &mut dyn Write) -> io::Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nmemory of tensors")?;
    writeln!(out, "       highest peak  processes  allocations     bytes  device")?;
    for of in devices {
        for (title, side) in [("before", of.before), ("after", of.after)] {
            let name = if title == "before" { of.device.as_str() } else { "" };
            let line = match side {
                Some(MemorySide { processes, peak_bytes, allocations, allocated_bytes }) => {
                    let [peak, bytes] = [peak_bytes, allocated_bytes].map(|value| Bytes(value).to_string());
                    format!("{title:6} {peak:>12}  {processes:>9}  {allocations:>11} {bytes:>9}  {name}")
                }
                None => format!("{title:6} {:>12}  {:>9}  {:>11} {:>9}  {name}", "–", "–", "–", "–"),
            };
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use deepctx_profile::device::memory::Pool;
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;
    use deepctx_profile::text;

    use super::*;
    use crate::diff::compare_operators;

    fn profile(cells: &[(&str, Metric, u64)]) -> Profile {
        let mut profile = text::parse("").unwrap();
        for (path, metric, value) in cells {
            let stack: Vec<_> =
                path.split(" / ").map(|part| text::parse_frame(&mut profile, part).unwrap()).collect();
            profile.add(&stack, *metric, *value);
        }
        profile
    }

    #[test]
    fn two_frameworks_read_side_by_side() {
        let mut torch = profile(&[
            ("o aten::addmm", Metric::Calls, 10),
            ("o aten::addmm / g sgemm", Metric::Kernels, 20),
            ("o aten::addmm / g sgemm", Metric::GpuTime, 3_000_000),
            ("o aten::addmm / o [backward] / g sgemm", Metric::GpuTime, 6_000_000),
            ("o aten::relu / g r", Metric::GpuTime, 1_000_000),
            ("n [memory]", Metric::TensorBytes, 4096),
        ]);
        torch.memory =
            vec![Pool { device: "cuda:0".into(), peak_bytes: 2 << 30, allocations: 5, ..Pool::default() }];
        let jax = profile(&[
            ("o jit(f)/dot_general / g gemm", Metric::Kernels, 10),
            ("o jit(f)/dot_general / g gemm", Metric::GpuTime, 2_000_000),
        ]);
        let mut out = Vec::new();
        write(&compare_operators(&torch, &jax, 2), &mut out).unwrap();
        expect_test::expect![[r#"
            operators by share of gpu-time; what runs in several is that of the innermost one

                     share     calls   kernels  per call  per kernel    device      host  allocations     bytes  operator
            before   30.0%        10        20       2.0      150 µs   3.00 ms         –            0       0 B  matrix product (aten::addmm)
            after   100.0%         –        10         –      200 µs   2.00 ms         –            –         –  (dot_general)
            before   60.0%         0         0         –           –   6.00 ms         –            0       0 B  aten::addmm [backward]
            after        –         –         –         –           –         –         –            –         –
              … 1 operator more
            before       –        10        20       2.0      500 µs   10.0 ms         –            0       0 B  all operators
            after        –         –        10         –      200 µs   2.00 ms         –            –         –
            before       –         0         0         –           –      0 ns         –            1  4.00 KiB  in no operator
            after        –         –         0         –           –      0 ns         –            –         –

            memory of tensors
                   highest peak  processes  allocations     bytes  device
            before     2.00 GiB          1            5       0 B  cuda:0
            after             –          –            –         –
        "#]].assert_eq(&String::from_utf8(out).unwrap());
    }
}
