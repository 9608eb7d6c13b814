//! Debuginfod: which servers are queried for debug information.
//!
//! Owns: reading `--debuginfod` and elfutils' own server settings. Because: nothing leaves the machine unless the
//! user wants it, and `sudo` drops the variables of the user's shell. Does not: query them.

use std::path::Path;
use std::time::Duration;

use deepctx_capture::CaptureConfig;
use deepctx_symbolizer::native::{ServerUrl, Servers};

use super::failure::Failure;

/// Server URLs, separated by spaces (`debuginfod_find_debuginfo(3)`).
const URLS: &str = "DEBUGINFOD_URLS";
/// Seconds within which 100 KiB must arrive.
const TIMEOUT: &str = "DEBUGINFOD_TIMEOUT";
/// Maximum seconds per file.
const LONGEST: &str = "DEBUGINFOD_MAXTIME";
/// Where distributions list their servers, in files `*.urls`.
const SYSTEM: &str = "/etc/debuginfod";
/// Maximum size of such a file.
const LIST_BYTES_MAX: u64 = 64 << 10;
/// Folder within the cache folder.
const FOLDER: &str = "debuginfod";

/// Value of the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerChoice {
    /// No servers.
    Off,
    /// The servers configured on this machine.
    System,
    /// These servers.
    Urls(Vec<ServerUrl>),
}

/// Parses `off`, `system`, or URLs.
pub(crate) fn parse(text: &str) -> Result<ServerChoice, String> {
    match text {
        "off" => Ok(ServerChoice::Off),
        "system" => Ok(ServerChoice::System),
        urls => ServerUrl::list(urls).map(ServerChoice::Urls),
    }
}

/// The servers to query.
///
/// # Errors
/// There are none, or a requirement for queries is missing.
pub(crate) fn servers(
    asked: Option<&ServerChoice>,
    debug_info_bytes: u64,
) -> Result<Vec<ServerUrl>, Failure> {
    let urls = match asked {
        None | Some(ServerChoice::Off) => return Ok(Vec::new()),
        Some(ServerChoice::Urls(urls)) => urls.clone(),
        Some(ServerChoice::System) => of_system(std::env::var(URLS).ok(), Path::new(SYSTEM))?,
    };
    if debug_info_bytes == 0 {
        return Err(Failure::new("`--debuginfod` and `--debug-info off` exclude each other"));
    }
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.is_absolute() && folder.join("curl").is_file())
    });
    if !found {
        let hint = "install it (`apt install curl`), or omit `--debuginfod`";
        return Err(Failure::new("`--debuginfod` needs curl, which is not in PATH").hint(hint));
    }
    Ok(urls)
}

/// The servers of the environment, else those that the distribution lists.
fn of_system(variable: Option<String>, folder: &Path) -> Result<Vec<ServerUrl>, Failure> {
    let hint = "name one: `--debuginfod=https://debuginfod.elfutils.org`";
    if let Some(urls) = variable.filter(|urls| !urls.trim().is_empty()) {
        return ServerUrl::list(&urls)
            .map_err(|expected| Failure::new(format_args!("{URLS}: {expected}")).hint(hint));
    }
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "urls"))
        .collect();
    paths.sort();
    let mut lists = Vec::new();
    for path in &paths {
        let is_list = std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.len() <= LIST_BYTES_MAX);
        let text = is_list.then(|| std::fs::read_to_string(path).ok()).flatten();
        lists.extend(text.iter().flat_map(|text| text.lines()).map(str::to_owned));
    }
    let urls = lists.join(" ");
    if urls.trim().is_empty() {
        let message =
            format!("`--debuginfod`: neither {URLS} nor a file in {} names a server", folder.display());
        return Err(Failure::new(message).hint(hint));
    }
    ServerUrl::list(&urls)
        .map_err(|expected| Failure::new(format_args!("{}: {expected}", folder.display())).hint(hint))
}

/// The symbolizer's configuration; `None` when no server is queried.
pub(crate) fn of(config: &CaptureConfig) -> Option<Servers> {
    let cache = config.cache.as_ref()?.join(FOLDER);
    let seconds = |name: &str| {
        let number: u64 = std::env::var(name).ok()?.trim().parse().ok()?;
        (number > 0).then(|| Duration::from_secs(number.min(24 * 3600)))
    };
    let mut servers = Servers::new(config.debuginfod.clone(), cache);
    servers.patience = seconds(TIMEOUT).unwrap_or(servers.patience);
    servers.longest = seconds(LONGEST).unwrap_or(servers.longest);
    (!servers.urls.is_empty()).then_some(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(found: Result<Vec<ServerUrl>, Failure>) -> Option<Vec<String>> {
        found.ok().map(|urls| urls.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_are_those_of_the_environment_or_the_distribution() {
        let folder = tempfile::tempdir().unwrap();
        let check = |variable: Option<&str>, expect: Option<&[&str]>| {
            let found = urls(of_system(variable.map(str::to_owned), folder.path()));
            let expect = expect.map(|of| of.iter().map(|url| (*url).to_owned()).collect());
            assert_eq!(found, expect, "{variable:?}");
        };
        check(None, None);
        check(Some("https://a.org"), Some(&["https://a.org"]));
        check(Some("nonsense"), None);
        std::fs::write(folder.path().join("elfutils.urls"), "https://b.org\n").unwrap();
        std::fs::write(folder.path().join("another.urls"), "ima:ignore https://c.org").unwrap();
        std::fs::write(folder.path().join("README"), "https://d.org").unwrap();
        check(None, Some(&["https://c.org", "https://b.org"]));
        check(Some("  "), Some(&["https://c.org", "https://b.org"]));
        check(Some("https://a.org"), Some(&["https://a.org"]));
    }

    #[test]
    fn the_option_names_servers_or_who_does() {
        assert_eq!(parse("off"), Ok(ServerChoice::Off));
        assert_eq!(parse("system"), Ok(ServerChoice::System));
        assert!(
            matches!(parse("https://a.org http://b.org"), Ok(ServerChoice::Urls(urls)) if urls.len() == 2)
        );
        for wrong in ["", "on", "a.org", "file:///tmp"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(servers(None, 1).map(|urls| urls.len()).ok(), Some(0));
        assert_eq!(servers(Some(&ServerChoice::Off), 0).map(|urls| urls.len()).ok(), Some(0));
        let asked = parse("https://a.org").unwrap();
        assert!(servers(Some(&asked), 0).is_err(), "nothing would be read of it");
    }
}
