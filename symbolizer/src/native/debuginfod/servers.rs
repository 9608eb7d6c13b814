//! Servers: which debuginfod servers to query, and with what timeouts.
//!
//! Owns: server addresses as listed in `DEBUGINFOD_URLS`, and hiding the secret parts of them. Because: an address
//! may hold a password, and a profile stores the options that it was recorded with. Does not: read the environment,
//! or query servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longest URL.
const URL_MAX: usize = 2048;
/// Most servers: each may take its time.
const SERVERS_MAX: usize = 16;

/// Servers that are asked for debug information, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Their URLs.
    pub urls: Vec<ServerUrl>,
    /// Private folder in which the files are kept.
    pub cache: PathBuf,
    /// At least 100 KiB of a file must arrive in this time, as for elfutils.
    pub patience: Duration,
    /// Longest time per file and server.
    pub longest: Duration,
}

impl Servers {
    /// Terms suitable for a server across the world.
    pub fn new(urls: Vec<ServerUrl>, cache: PathBuf) -> Self {
        Self { urls, cache, patience: Duration::from_secs(30), longest: Duration::from_secs(300) }
    }
}

/// URL of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The URL for requests, including any password.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// URLs separated by blanks, as in `DEBUGINFOD_URLS`. Elfutils' items about the check of signatures (`ima:…`) are
    /// skipped.
    ///
    /// # Errors
    /// What was expected.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let words = text.split_whitespace().filter(|word| !word.starts_with("ima:"));
        let mut urls = Vec::new();
        for url in words.map(str::parse::<Self>) {
            let url = url?;
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        match urls.len() {
            0 => Err("expected the address of a server".to_owned()),
            1..=SERVERS_MAX => Ok(urls),
            more => Err(format!("expected at most {SERVERS_MAX} servers, found {more}")),
        }
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected an address like https://HOST, found '{text}'");
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = host.map(|rest| rest.split('/').next().unwrap_or_default()).unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        // Other characters could end the line for the download program, or start a query.
        let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\\' | '\'' | '<' | '>' | '#' | '?');
        if host.is_empty() || text.len() > URL_MAX || text.contains(odd) {
            return Err(expected());
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for ServerUrl {
    /// Without user name and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or_default();
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = host.rsplit('@').next().unwrap_or_default();
        write!(f, "{scheme}://{host}{path}")
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_listed_as_elfutils_lists_them() {
        let check = |text: &str, expect: Option<&[&str]>| {
            let found = ServerUrl::list(text).ok();
            let shown = found.map(|urls| urls.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(
                shown,
                expect.map(|urls| urls.iter().map(|url| (*url).to_owned()).collect()),
                "{text}"
            );
        };
        check("https://a.org/ http://b:8002/x", Some(&["https://a.org", "http://b:8002/x"]));
        check(" ima:enforcing https://a.org ima:ignore https://a.org/", Some(&["https://a.org"]));
        check("https://me:secret@a.org/x", Some(&["https://a.org/x"]));
        for wrong in [
            "",
            "ima:enforcing",
            "a.org",
            "file:///etc",
            "https://",
            "https:///x",
            "https://me@/x",
            "-K/etc/shadow",
            "https://a\"\nurl=\"file:///etc/shadow",
            "https://a\\",
            "https://a.org/?x",
        ] {
            check(wrong, None);
        }
        check(&(0..=SERVERS_MAX).map(|n| format!("http://a{n} ")).collect::<String>(), None);
    }

    #[test]
    fn a_password_is_sent_and_not_shown() {
        let url: ServerUrl = "https://me:secret@a.org".parse().unwrap();
        assert!(url.secret().contains("secret") && url.is_encrypted());
        assert!(!format!("{url} {url:?}").contains("secret"));
    }
}
