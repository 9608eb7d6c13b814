//! Host stubs: the functions by which a program's own code launches its kernels.
//!
//! Owns: deriving the kernel's name from the stub's name. Because: a program passes the runtime the address of a stub
//! (with HIP, of a variable), and compilers derive the stub's name from the kernel's. Does not: read files to find
//! the symbol at an address.
//!
//! | host symbol | kernel |
//! |---|---|
//! | `_ZL24__device_stub__Z4gemmPfiPfi` (nvcc) | `_Z4gemmPfi`: what follows `__device_stub_` is its symbol |
//! | `_Z19__device_stub__gemmPfi` (clang) | `_Z4gemmPfi`: the same name without the prefix |
//! | `_Z4gemmPfi` | itself: the host's side of a kernel is named as the kernel is |

const PREFIX: &str = "__device_stub__";

/// The kernel that the host symbol of this name stands for; `None` if the name cannot be parsed.
pub fn kernel_of_stub(symbol: &str) -> Option<String> {
    let Some(at) = symbol.find(PREFIX) else {
        return (!symbol.is_empty()).then(|| symbol.to_owned());
    };
    // The identifier is preceded by its length; a C symbol has none.
    let digits = symbol[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let (before, length) = symbol[..at].split_at(at - digits);
    let end = if digits == 0 { symbol.len() } else { at.checked_add(length.parse().ok()?)? };
    let kernel = symbol.get(at..end)?.strip_prefix(PREFIX)?;
    if kernel.is_empty() {
        return None;
    }
    if kernel.starts_with('Z') {
        // The last underscore of the prefix begins the kernel's own symbol.
        return symbol.get(at + PREFIX.len() - 1..end).map(str::to_owned);
    }
    let behind = &symbol[end..];
    if digits == 0 {
        return Some(kernel.to_owned());
    }
    Some(format!("{before}{}{kernel}{behind}", kernel.len()))
}

/// The kernel of a stub by the stub's readable name; `None` if the name is not that of a stub.
pub fn kernel_of_readable_stub(name: &str) -> Option<String> {
    let (before, kernel) = name.split_once(PREFIX)?;
    match kernel.strip_prefix('Z') {
        // The kernel's own symbol, then the parameters of the stub.
        Some(_) if before.is_empty() => {
            let symbol = kernel.split('(').next()?;
            Some(format!("_{symbol}"))
        }
        _ if kernel.is_empty() || kernel.starts_with('(') => None,
        _ => Some(format!("{before}{kernel}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(symbol: &str, expect: Option<&str>) {
        assert_eq!(kernel_of_stub(symbol).as_deref(), expect, "{symbol}");
    }

    #[test]
    fn a_stub_is_named_after_its_kernel_by_every_compiler() {
        check("_ZL24__device_stub__Z4gemmPfiPfi", Some("_Z4gemmPfi"));
        check("__device_stub__Z4gemmPfi", Some("_Z4gemmPfi"));
        check("_Z19__device_stub__gemmPfi", Some("_Z4gemmPfi"));
        check("_ZN3net19__device_stub__gemmEPfi", Some("_ZN3net4gemmEPfi"));
        check("_Z19__device_stub__gemmIfEvPT_", Some("_Z4gemmIfEvPT_"));
        check("__device_stub__gemm", Some("gemm"));
        check("_Z4gemmPfi", Some("_Z4gemmPfi"));
    }

    #[test]
    fn a_stub_is_known_by_its_readable_name_too() {
        for (name, expect) in [
            ("__device_stub__Z4gemmPfi(float*, int)", Some("_Z4gemmPfi")),
            ("__device_stub__Z4gemmPfi", Some("_Z4gemmPfi")),
            ("net::__device_stub__gemm(float*, int)", Some("net::gemm(float*, int)")),
            ("gemm(float*, int)", None),
            ("__device_stub__(int)", None),
            ("__device_stub__", None),
        ] {
            assert_eq!(kernel_of_readable_stub(name).as_deref(), expect, "{name}");
        }
    }

    #[test]
    fn a_stub_whose_name_lies_about_its_length_is_none() {
        for symbol in ["_ZL99__device_stub__Z4gemmPfi", "_ZL15__device_stub__", "_Z3__device_stub__gemm", ""]
        {
            check(symbol, None);
        }
        check("_Z99999999999999999999999__device_stub__gemm", None);
    }
}
