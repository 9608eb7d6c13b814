//! Tests of what debuginfod servers may answer: files, nothing, garbage, or no response.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use super::*;

const OURS: &str = "00112233445566778899aabbccddeeff";
const OTHERS: &str = "ffeeddccbbaa99887766554433221100";
/// Most bytes of a file; the compiled one is smaller.
const BYTES_MAX: u64 = 1 << 20;

/// Behavior of a server.
#[derive(Clone)]
enum Response {
    /// A status and a body, with its length.
    Body(&'static str, Vec<u8>),
    /// States more bytes than it sends.
    Cut(Vec<u8>),
    /// Zeros without end.
    Endless,
    /// A byte now and then.
    Dripping,
    /// No response.
    Silent,
}

fn ok(body: Vec<u8>) -> Response {
    Response::Body("200 OK", body)
}

impl Response {
    fn write(&self, to: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Self::Body(status, body) => {
                write!(
                    to,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                )?;
                to.write_all(body)
            }
            Self::Cut(body) => {
                write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len() + 1)?;
                to.write_all(body)
            }
            Self::Endless => {
                write!(to, "HTTP/1.1 200 OK\r\n\r\n")?;
                loop {
                    to.write_all(&[0; 4096])?;
                }
            }
            Self::Dripping => {
                write!(to, "HTTP/1.1 200 OK\r\n\r\n")?;
                loop {
                    to.write_all(&[0])?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            // Until the client hangs up.
            Self::Silent => std::io::copy(to, &mut std::io::sink()).map(drop),
        }
    }
}

/// A server with the same response to every request. Returns its URL and the requests.
fn serve(answer: Response) -> (ServerUrl, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (asked, questions) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let _ = asked.send(head.join("\n"));
            // The client may have hung up.
            let _ = answer.write(&mut stream);
        }
    });
    (url, questions)
}

/// A library with this build-id, as a compiler makes it with these options.
fn compiled(folder: &Path, id: &str, options: &[&str]) -> Vec<u8> {
    let (source, path) = (folder.join("work.c"), folder.join("work.so"));
    std::fs::write(
        &source,
        "static int hidden(int n) { return n * n; }\nint work(int n) { return hidden(n); }\n",
    )
    .unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", &format!("-Wl,--build-id=0x{id}")]).args(options);
    assert!(command.arg("-o").arg(&path).arg(&source).status().unwrap().success());
    std::fs::read(&path).unwrap()
}

fn id(text: &str) -> BuildId {
    let bytes: Vec<u8> =
        (0..text.len() / 2).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap()).collect();
    BuildId::new(&bytes).unwrap()
}

fn asking(urls: Vec<ServerUrl>, cache: &Path) -> Debuginfod {
    let servers = Servers {
        patience: Duration::from_secs(1),
        longest: Duration::from_secs(60),
        ..Servers::new(urls, cache.to_owned())
    };
    Debuginfod::start(servers, BYTES_MAX).unwrap()
}

/// The answer, once there is one.
fn answer(debuginfod: &mut Debuginfod, id: BuildId) -> Result<File, NoSymbol> {
    loop {
        match debuginfod.find(Author::user(0), id) {
            Err(NoSymbol::DebuginfodPending) => std::thread::sleep(Duration::from_millis(5)),
            answer => return answer,
        }
    }
}

/// True if a test must be skipped; a build server must have everything.
fn lacks_programs() -> bool {
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let missing = !has(download::PROGRAM) || !has("cc");
    assert!(!missing || std::env::var("CI").as_deref() != Ok("true"), "curl or cc is missing");
    missing
}

#[test]
fn whatever_a_server_answers_has_its_reason() {
    if lacks_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let with_debug = compiled(folder.path(), OURS, &["-g"]);
    let stripped = compiled(folder.path(), OURS, &["-s"]);
    let other = compiled(folder.path(), OTHERS, &["-g"]);
    let check = |answers: &[Response], expect: Result<(), NoSymbol>| {
        let cache = tempfile::tempdir().unwrap();
        let urls = answers.iter().map(|answer| serve(answer.clone()).0).collect();
        let found = answer(&mut asking(urls, &cache.path().join("files")), id(OURS));
        assert_eq!(found.as_ref().map(drop), expect.as_ref().map(drop), "{}", answers.len());
        let kept = std::fs::read_dir(cache.path().join("files")).unwrap().count();
        assert_eq!(kept, usize::from(expect.is_ok()), "{expect:?}");
    };
    let missing = Response::Body("404 Not Found", b"no".to_vec());
    check(&[ok(with_debug.clone())], Ok(()));
    check(&[missing.clone(), ok(other.clone()), ok(with_debug.clone())], Ok(()));
    check(std::slice::from_ref(&missing), Err(NoSymbol::DebuginfodNotFound));
    check(&[missing.clone(), ok(other)], Err(NoSymbol::DebuginfodOtherBuild));
    check(&[ok(stripped)], Err(NoSymbol::DebuginfodUnusable));
    check(&[ok(b"<html>".to_vec())], Err(NoSymbol::DebuginfodUnusable));
    check(&[ok(with_debug[..100].to_vec())], Err(NoSymbol::DebuginfodUnusable));
    check(&[ok(vec![0; BYTES_MAX as usize + 1])], Err(NoSymbol::DebuginfodTooLarge));
    check(&[Response::Endless], Err(NoSymbol::DebuginfodTooLarge));
    check(&[Response::Cut(with_debug)], Err(NoSymbol::DebuginfodFailed));
    check(&[Response::Body("500 Oh", Vec::new()), missing], Err(NoSymbol::DebuginfodFailed));
    check(&[Response::Silent], Err(NoSymbol::DebuginfodTooSlow));
    check(&[Response::Dripping], Err(NoSymbol::DebuginfodTooSlow));
}

#[test]
fn nobody_at_the_address_is_a_failure() {
    if lacks_programs() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut debuginfod = asking(vec![format!("http://{free}").parse().unwrap()], &cache.path().join("files"));
    for n in 1..=FAILURES_MAX + 1 {
        let id = id(&format!("{n:032x}"));
        assert_eq!(answer(&mut debuginfod, id).err(), Some(NoSymbol::DebuginfodFailed));
    }
}

#[test]
fn a_server_that_fails_again_and_again_is_left_alone() {
    if lacks_programs() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let (url, asked) = serve(Response::Body("503 Busy", Vec::new()));
    let mut debuginfod = asking(vec![url], &cache.path().join("files"));
    for n in 1..=FAILURES_MAX + 2 {
        let id = id(&format!("{n:032x}"));
        assert_eq!(answer(&mut debuginfod, id).err(), Some(NoSymbol::DebuginfodFailed));
    }
    assert_eq!(asked.try_iter().count(), FAILURES_MAX as usize);
}

#[test]
fn a_server_that_failed_is_asked_again_after_ten_minutes() {
    let (mut server, now) = (Server::new("http://127.0.0.1:1".parse().unwrap()), Instant::now());
    for _ in 0..FAILURES_MAX {
        assert!(!server.rests(now));
        server.failed(now, NoSymbol::DebuginfodFailed);
    }
    assert!(server.rests(now) && server.rests(now + REST / 2) && !server.rests(now + REST));
    // A single failure is enough then.
    server.failed(now + REST, NoSymbol::DebuginfodTooSlow);
    assert!(server.rests(now + REST * 3 / 2));
}

#[test]
fn a_kept_file_is_private_and_not_asked_for_again() {
    if lacks_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache/files");
    let body = compiled(folder.path(), OURS, &["-g"]);
    let (url, asked) = serve(ok(body.clone()));
    for _ in 0..2 {
        let file = answer(&mut asking(vec![url.clone()], &cache), id(OURS)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), body.len() as u64);
    }
    let asked: Vec<String> = asked.try_iter().collect();
    assert_eq!(asked.len(), 1);
    // Requests reveal nothing else about this machine.
    let names = asked[0].lines().skip(1).map(|line| line.split(':').next().unwrap().to_ascii_lowercase());
    let names: Vec<String> = names.collect();
    assert!(asked[0].starts_with(&format!("GET /buildid/{OURS}/debuginfo HTTP/1.1")), "{asked:?}");
    assert!(names.iter().all(|name| ["host", "user-agent", "accept"].contains(&&**name)), "{asked:?}");
    let modes = [(&cache, 0o700), (&cache.join(format!("{OURS}.debug")), 0o600)];
    for (path, mode) in modes {
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode, "{path:?}");
    }
    // A replaced file is another build's, and is not used.
    std::fs::write(cache.join(format!("{OURS}.debug")), compiled(folder.path(), OTHERS, &["-g"])).unwrap();
    let mut debuginfod = asking(vec![url], &cache);
    assert!(answer(&mut debuginfod, id(OURS)).is_ok());
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(Store::open(&cache, 1).is_err(), "others may read it");
}

#[test]
fn the_end_of_a_capture_ends_a_download() {
    if lacks_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("files");
    let (url, asked) = serve(Response::Silent);
    let servers = Servers::new(vec![url], cache.clone());
    let mut debuginfod = Debuginfod::start(servers, BYTES_MAX).unwrap();
    assert_eq!(debuginfod.find(Author::user(0), id(OURS)).err(), Some(NoSymbol::DebuginfodPending));
    asked.recv().unwrap();
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    let shared = Arc::downgrade(&debuginfod.shared);
    drop(debuginfod);
    while shared.strong_count() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0);
}

#[test]
fn files_used_longest_ago_give_way() {
    if lacks_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("files");
    let body = compiled(folder.path(), OURS, &["-g"]);
    let store = Store::open(&cache, 2 * body.len() as u64 + 1000).unwrap();
    let ids = [OURS, OTHERS, "0123456789abcdef0123456789abcdef"];
    for (n, text) in ids.iter().enumerate() {
        let new = store.begin().unwrap();
        (&new.file).write_all(&compiled(folder.path(), text, &["-g"])).unwrap();
        new.keep(&id(text)).unwrap();
        // Uses within ten minutes of each other count as equal.
        let used = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 * (n as u64 + 1));
        File::open(cache.join(format!("{text}.debug"))).unwrap().set_modified(used).unwrap();
        if n == 1 {
            assert!(store.find(&id(OURS)).is_some(), "which counts as a use");
        }
    }
    let kept = ids.map(|text| store.find(&id(text)).is_some());
    assert_eq!(kept, [true, false, true]);
}

#[test]
fn authors_take_turns_and_none_fills_the_queue() {
    let (hers, his) = (Author::user(7), Author::user(8));
    let of = |n: usize| id(&format!("{:032x}", n + 1));
    let mut queue = Queue::default();
    (0..2 * WAITING_MAX).for_each(|n| queue.push(hers, of(n)));
    queue.push(his, of(1000));
    assert_eq!(queue.waiting.len(), WAITING_MAX + 1);
    let order: Vec<BuildId> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order[..3], [of(0), of(1000), of(1)]);
    assert_eq!(order.len(), WAITING_MAX + 1);
}
