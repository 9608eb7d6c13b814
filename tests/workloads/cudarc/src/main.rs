//! Launches kernels of known count and duration through `cudarc`, as Rust programs do: the driver is loaded at run
//! time, and two threads have a stream each. Launches once a profiler watches, then writes its account.
//!
//! ```text
//! deepctx-gpu-cudarc --account FILE LAUNCHES        launches of each kernel on each thread
//! FILE: [{"kernels": {"spin_20us": 400, "spin_100us": 400}}]
//! ```

mod attention;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use attention::Code;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig};
use cudarc::nvrtc::Ptx;

const PTX: &str = include_str!("kernels.ptx");
/// Names of the kernels in the module: the name states the duration.
const KERNELS: [&str; 2] = ["spin_20us", "spin_100us"];
const THREADS: u64 = 2;
const CONFIG: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [option, account, launches] = &words[..] else { return usage() };
    let Ok(launches) = launches.parse::<u64>() else { return usage() };
    if option != "--account" {
        return usage();
    }
    match run(launches).and_then(|()| written(account, launches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deepctx-gpu-cudarc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: deepctx-gpu-cudarc --account FILE LAUNCHES");
    ExitCode::from(2)
}

fn run(launches: u64) -> Result<(), String> {
    // SAFETY: loads the library of the driver, if it exists.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("no library of the driver (libcuda.so.1)".into());
    }
    let code =
        Code::of_launch().map_err(|error| format!("the driver's code cannot be looked at: {error}"))?;
    let of_driver = |error: DriverError| format!("the driver: {error}");
    let context = CudaContext::new(0).map_err(of_driver)?;
    let module = context.load_module(Ptx::from_src(PTX)).map_err(of_driver)?;
    let kernels = KERNELS.map(|name| module.load_function(name));
    let [short, long] = kernels.map(|kernel| kernel.map_err(of_driver));
    let kernels = [short?, long?];
    code.wait_for_attention()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| launch(&context, &kernels, launches))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done.map_err(of_driver),
            Err(_) => Err("a thread panicked".into()),
        })
    })
}

/// Launches each kernel `launches` times, one after the other.
fn launch(context: &Arc<CudaContext>, kernels: &[CudaFunction], launches: u64) -> Result<(), DriverError> {
    let stream: Arc<CudaStream> = context.new_stream()?;
    for i in 0..launches {
        for kernel in kernels {
            // SAFETY: the kernels take no arguments and touch no memory.
            unsafe { stream.launch_builder(kernel).launch(CONFIG) }?;
        }
        // Queues are bounded.
        if i % 100 == 99 {
            stream.synchronize()?;
        }
    }
    stream.synchronize()
}

fn written(account: &str, launches: u64) -> Result<(), String> {
    let counts = KERNELS.map(|name| format!("\"{name}\": {}", launches * THREADS));
    let text = format!("[{{\"kernels\": {{{}}}}}]\n", counts.join(", "));
    std::fs::write(account, text).map_err(|error| format!("cannot write {account}: {error}"))?;
    // The profiler resolves names while the process is alive.
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}
