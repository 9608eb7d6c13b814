//! A headless browser.
//!
//! Owns: finding it, and running a script in a page. Because: only a browser shows how a page looks. Does not: use a
//! network, or keep files.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Wrapper of a script that prints its result to the console.
const AROUND: [&str; 2] = [
    r#"<script>
const say = (result) => console.log("RESULT " + JSON.stringify(result));
setTimeout(() => say({ error: "the page took more than two minutes" }), 120000);
(async () => say(await (async () => {"#,
    r#"})()))().catch((error) => say({ error: String(error.stack) }));
</script></body>"#,
];

/// Name of an installed browser, if any.
pub(crate) fn browser() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        println!("skipped: there is no chromium");
    }
    found
}

/// A command for the browser with a separate folder.
pub(crate) fn command(browser: &str, folder: &Path) -> Command {
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", folder.display()));
    command
}

/// The result of a script in the page. The browser must print nothing else on its console.
pub(crate) fn run(browser: &str, page: &Path, script: &str, options: &[&str]) -> Value {
    let text = fs::read_to_string(page).unwrap();
    assert_eq!(text.matches("</body>").count(), 1);
    let run = page.with_extension("run.html");
    fs::write(&run, text.replace("</body>", &format!("{}{script}{}", AROUND[0], AROUND[1]))).unwrap();
    let mut command = command(browser, &page.with_extension("browser"));
    // With a debugging port, it runs until it is ended.
    command.args(["--remote-debugging-port=0", "--enable-logging=stderr"]).args(options);
    command.arg(format!("file://{}", run.display()));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.filter(|line| line.contains(":CONSOLE")).find_map(|line| {
        let rest = line.split_once("RESULT ").map(|(_, rest)| rest.to_owned());
        assert!(rest.is_some(), "the page said: {line}");
        rest
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.expect("the page gives a result");
    let result: Value = serde_json::from_str(&said[..said.rfind("\", source").unwrap()]).unwrap();
    assert_eq!(result["error"], Value::Null, "{result}");
    result
}
