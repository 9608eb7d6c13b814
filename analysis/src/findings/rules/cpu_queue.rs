//! Runnable threads that wait for a CPU.

use deepctx_profile::metric::Metric;

use super::{Facts, Outcome, PlaceKey, Rule, ShareCheck, Values, cpu_limit, share_of_runnable};
use crate::findings::facts::Class;
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "cpu-queue",
    what: "threads that could run and wait for a CPU: there are more of them than CPUs",
    definition: "time off the CPU with the reason `waiting for a CPU` / (that + time on the CPU) ≥ \
                 `min_percent`, in waits of `min_mean_us` on average: shorter ones are threads that just woke up",
    source: "SageMaker Debugger (`CPUBottleneck`, oversubscription by OpenCV); DeepContext 6.5 (more \
             loader threads than cores)",
    origin: "share of snapshots with GPU < 10 % and a CPU > 90 % is > 50 %",
    needs: "time off the CPU, and targets that no CPU limit stops often",
    parameters: &[
        Parameter { name: "min_percent", default: 10.0, source: "own" },
        // A thread that has to wait for its turn waits for milliseconds (EEVDF's base slice).
        Parameter { name: "min_mean_us", default: 200.0, source: "own" },
    ],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let share = match share_of_runnable(facts, |classes| classes.has(Class::CpuQueue)) {
        Ok(share) => share,
        Err(missing) => return missing,
    };
    let waits = share.exact[0];
    if (waits.value as f64) < waits.count as f64 * values.get("min_mean_us") * 1000.0 {
        return Outcome::Healthy { datapoints: waits.count };
    }
    let outcome = ShareCheck {
        metric: Metric::OffCpuTime,
        share,
        limit: "min_percent",
        of: Some("time in which threads run or could run"),
        places: None,
        is_in: &|node| facts.classes(node).has(Class::CpuQueue),
        by: PlaceKey::Line,
        title: &|share| format!("Threads that could run wait {share} of their time for a CPU"),
        figure: "time waiting for a CPU",
        advice: "Start fewer threads and loader workers than CPUs (num_workers, OMP_NUM_THREADS, \
                 cv2.setNumThreads(0)), or keep other programs off them.",
        because: "with a CPU for each thread these waits end; the work itself stays",
    }
    .outcome(facts, values);
    match outcome {
        // A thread that its limit stops waits for a CPU, too: `cpu-limit` reports it.
        Outcome::Findings(_) if cpu_limit::explains_waits(facts) => {
            Outcome::missing(reason::CPU_LIMIT_REACHED)
        }
        outcome => outcome,
    }
}
