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
/// Most digits of an identifier's length: longer names are not read.
const LENGTH_DIGITS_MAX: usize = 4;

/// The kernel that the host symbol of this name stands for; `None` if the name cannot be parsed.
pub fn kernel_of_stub(symbol: &str) -> Option<String> {
    let Some(at) = symbol.find(PREFIX) else {
        return (!symbol.is_empty()).then(|| symbol.to_owned());
    };
    // The identifier is preceded by its length; a C symbol has none.
    let digits = symbol[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let (begin, end) = if digits == 0 { (at, symbol.len()) } else { identifier(symbol, at, digits)? };
    let kernel = symbol.get(at..end)?.strip_prefix(PREFIX)?;
    if kernel.is_empty() {
        return None;
    }
    if kernel.starts_with('Z') {
        // The last underscore of the prefix begins the kernel's own symbol.
        return symbol.get(at + PREFIX.len() - 1..end).map(str::to_owned);
    }
    let (before, behind) = (&symbol[..begin], &symbol[end..]);
    if digits == 0 {
        return Some(kernel.to_owned());
    }
    Some(format!("{before}{}{kernel}{behind}", kernel.len()))
}

/// Where the length of the stub's identifier at `at` begins, and where the identifier ends. The first of the digits
/// before it may belong to the name of a namespace: `4net2`, then `19__device_stub__gemm`.
fn identifier(symbol: &str, at: usize, digits: usize) -> Option<(usize, usize)> {
    let all = at - digits;
    let begins = (at - digits.min(LENGTH_DIGITS_MAX)..at).filter(|begin| !symbol[*begin..].starts_with('0'));
    let end_of = |begin: usize| {
        let length: usize = symbol[begin..at].parse().ok()?;
        at.checked_add(length).filter(|end| length > PREFIX.len() && *end <= symbol.len())
    };
    let mut fitting = begins.filter_map(|begin| Some((begin, end_of(begin)?)));
    // A name that ends where the length begins has its own length before it.
    let ends_name = |end: usize| {
        (1..end).any(|begin| {
            let before = symbol.get(..begin).unwrap_or_default();
            before.ends_with(&(end - begin).to_string())
        })
    };
    fitting.clone().find(|(begin, _)| *begin > all && ends_name(*begin)).or_else(|| fitting.next())
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
        check("_ZN4net219__device_stub__gemmEPfi", Some("_ZN4net24gemmEPfi"));
        check("_ZN3v1019__device_stub__gemmEPfi", Some("_ZN3v104gemmEPfi"));
        let long = "Pf".repeat(150);
        check(&format!("_ZN4net219__device_stub__gemmE{long}"), Some(&format!("_ZN4net24gemmE{long}")));
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
