//! The live pages in Chromium: what they show, how soon, and for whom.
//!
//! Pictures are kept under `target/ci`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::devtools::Browser;
use crate::in_a_browser::{browser, pictures};

/// A directory of a test, gone when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("raidlab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Dir(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_string()
    }

    /// An image of this size, without contents.
    fn image(&self, name: &str, bytes: u64) -> String {
        let path = self.file(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(dir: &Dir, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", &dir.0).env_remove("RAIDLAB_LOG");
    command
}

fn raidlab(dir: &Dir, words: &str) {
    let output = command(dir, words).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {stderr}");
}

/// A program with a page.
struct Program {
    child: Child,
    url: String,
}

impl Program {
    /// Starts it, and waits for the line with the address.
    fn start(dir: &Dir, words: &str) -> Program {
        let mut command = command(dir, words);
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        command.stdout(writer.try_clone().expect("a copy")).stderr(writer);
        let child = command.spawn().expect("the program starts");
        // Its copies of the pipe's end would keep it open.
        drop(command);
        let mut said = String::new();
        let mut lines = BufReader::new(reader.try_clone().expect("a copy")).lines();
        let url = loop {
            let Some(Ok(line)) = lines.next() else { panic!("{words}: no page: {said}") };
            said += &(line.clone() + "\n");
            if let Some(at) = line.find("http://").filter(|_| line.contains("page")) {
                break line[at..].trim().to_string();
            }
        };
        // Whatever it prints later has to go somewhere.
        std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        Program { child, url }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser, or the reason why there is none, said.
fn start_browser(dir: &Dir) -> Option<Browser> {
    let Some(program) = browser() else {
        println!("skipped: chromium is not installed; `scripts/setup --with-tests`");
        return None;
    };
    Some(Browser::start(program, &dir.0.join("profile")))
}

/// axe-core, as `scripts/axe` gets it.
fn axe() -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let path = std::env::var_os("RAIDLAB_AXE").map(PathBuf::from);
    let path = path.unwrap_or_else(|| target.join("axe/axe.min.js"));
    std::fs::read_to_string(path).ok()
}

/// What axe-core finds: contrast, labels, roles, the order of headings.
fn violations(browser: &mut Browser, axe: &str) -> Vec<String> {
    browser.eval(&format!("{{ {axe}; 0 }}"));
    let run = "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', \
               'wcag21a', 'wcag21aa', 'best-practice']}).then(({violations}) => \
               violations.map(({id, nodes}) => id + ': ' + nodes.map(({html, any}) => html + ' ' \
               + any.map(({message}) => message)).slice(0, 3).join(' | ')))";
    let found = browser.eval(run);
    let found = found.as_array().expect("a list").iter();
    found.map(|text| text.as_str().expect("a text").to_string()).collect()
}

/// Pictures of all looks, none of which is broader than its window.
fn looks(browser: &mut Browser, name: &str, axe: Option<&str>) {
    let all =
        [(400, 800, "light"), (400, 800, "dark"), (1600, 1000, "light"), (1600, 1000, "dark")];
    for (width, height, scheme) in all {
        browser.look(width, height, scheme, "reduce");
        // Charts follow the width with the next frame.
        std::thread::sleep(Duration::from_millis(400));
        let broad = "document.documentElement.scrollWidth > innerWidth";
        assert_eq!(browser.eval(broad), false, "{name}: broader than {width}");
        browser.picture(&pictures().join(format!("page-{name}-{width}-{scheme}.png")));
        if let Some(axe) = axe.filter(|_| width == 400 || scheme == "dark") {
            let found = violations(browser, axe);
            assert!(found.is_empty(), "{name} {width} {scheme}: {found:#?}");
        }
    }
}

/// Nothing on the console, and nothing requested from elsewhere.
fn is_silent(browser: &mut Browser, url: &str) {
    let said = browser.console();
    assert!(said.is_empty(), "{said:#?}");
    let own = url.split('#').next().expect("an address");
    let others: Vec<String> =
        browser.requested().into_iter().filter(|it| !it.starts_with(own)).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// An array of four images, served with a page that takes orders.
fn served(dir: &Dir) -> Program {
    let disks: Vec<String> = (0..4).map(|at| dir.file(&format!("disk{at}.img"))).collect();
    let all = disks.join(" ");
    raidlab(dir, &format!("create --level 5 --raid-devices 4 --file-size 64M --name data {all}"));
    let socket = dir.file("nbd");
    Program::start(
        dir,
        &format!("serve {all} --nbd unix:{socket} --speed-limit-max 8MB/s --web=0 --web-control"),
    )
}

const STATES: &str = "[...document.querySelectorAll('.array .member')].map(it => it.dataset.state)";

#[test]
fn a_lost_member_is_shown_soon_and_its_rebuild_moves() {
    let dir = Dir::new("page-served");
    let Some(mut browser) = start_browser(&dir) else { return };
    let axe = axe();
    let program = served(&dir);
    browser.look(1600, 1000, "light", "no-preference");
    browser.open(&program.url);
    browser.until(&format!("String({STATES}) === 'in_sync,in_sync,in_sync,in_sync'"));
    assert_eq!(browser.eval("location.hash"), "", "the token does not stay in the address");
    // Read aloud once, and not with every frame.
    let link = "document.getElementById('link-said').textContent";
    assert_eq!(browser.eval(link), "connected: figures are live");
    looks(&mut browser, "served", axe.as_deref());
    browser.look(1600, 1000, "light", "no-preference");

    // The order has been carried out when the command ends.
    let begun = Instant::now();
    raidlab(&dir, "fail data 1");
    let ordered = begun.elapsed();
    browser.until(&format!("{STATES}.includes('missing') && {STATES}.includes('faulty')"));
    // On a busy machine the start of the command alone can take longer than that.
    let shown = begun.elapsed() - ordered;
    println!("the order took {ordered:?}, shown after {shown:?}, of 1 s");
    assert!(shown < Duration::from_secs(30), "shown after {shown:?}");
    browser.until("document.querySelector('.events [data-kind=Fail]') !== null");
    // The scale of the others stays.
    let scale = "document.querySelector('.array .legend').textContent";
    let scale = browser.eval(scale).as_str().expect("a text").to_string();
    assert!(scale.starts_with("share of the time busy, 0 to 100 %"), "{scale}");
    assert_eq!(browser.eval("document.querySelector('.array').dataset.severity"), "warning");

    // By the keyboard: the button, the path, Enter.
    let new = dir.image("new.img", 64 << 20);
    let focus = "[...document.querySelectorAll('.actions button')].at(-1).focus()";
    browser.eval(focus);
    browser.press("Enter");
    browser.until("document.querySelector('dialog').open");
    browser.insert(&new);
    if let Some(axe) = &axe {
        let found = violations(&mut browser, axe);
        assert!(found.is_empty(), "the dialog: {found:#?}");
    }
    browser.picture(&pictures().join("page-dialog.png"));
    browser.press("Enter");
    let at = "Number(document.querySelector('.job .meter')?.getAttribute('aria-valuenow') ?? -1)";
    browser.until(&format!("{at} > 2"));
    let first = browser.eval(at).as_f64().expect("a number");
    browser.until(&format!("{at} > {first} + 3"));
    assert_eq!(browser.eval(&format!("{STATES}.includes('rebuilding')")), true);
    looks(&mut browser, "rebuild", axe.as_deref());
    browser.until(&format!("{STATES}.filter(it => it === 'in_sync').length === 4"));
    is_silent(&mut browser, &program.url);
    if axe.is_none() {
        println!("axe-core skipped: scripts/axe has not fetched it");
        println!("skipped: no axe-core; `scripts/setup --with-tests`");
    }
}

#[test]
fn orders_need_a_confirmation_and_the_token() {
    let dir = Dir::new("page-orders");
    let Some(mut browser) = start_browser(&dir) else { return };
    let program = served(&dir);
    let (open, token) = program.url.split_once("#token=").expect("a token");
    browser.look(400, 800, "dark", "reduce");
    browser.open(open);
    // Without the token it shows nothing of the array.
    browser.until("!document.getElementById('sign-in').hidden");
    assert_eq!(browser.eval("document.querySelector('.array')"), Value::Null);
    browser.picture(&pictures().join("page-token.png"));
    if let Some(axe) = axe() {
        let found = violations(&mut browser, &axe);
        assert!(found.is_empty(), "the token: {found:#?}");
    }
    browser.insert("not-this-token-here");
    browser.press("Enter");
    browser.until("document.getElementById('sign-in-problem').textContent !== ''");
    browser.eval("document.getElementById('token').focus()");
    browser.insert(token);
    browser.press("Enter");
    browser.until(&format!("{STATES}.length === 4"));
    // From the start of the page by Tab to the first member, then by arrows to the second.
    browser.eval("document.activeElement.blur()");
    let on_member = "document.activeElement.classList.contains('member')";
    let stops = (0..20).find(|_| {
        browser.press("Tab");
        browser.eval(on_member) == true
    });
    assert!(stops.is_some(), "Tab reaches the members");
    browser.press("ArrowDown");
    let label = "document.activeElement.getAttribute('aria-label')";
    let label = browser.eval(label).as_str().expect("a label").to_string();
    assert!(label.starts_with("slot 1, ") && label.contains("in sync"), "{label}");
    // The next stop is its button; Enter opens the question, and Enter again cancels.
    browser.press("Tab");
    assert_eq!(browser.eval("document.activeElement.textContent"), "Fail…");
    let open = "document.querySelector('dialog').open";
    browser.press("Enter");
    browser.until(open);
    browser.press("Enter");
    browser.until(&format!("!{open}"));
    browser.press("Enter");
    browser.until(open);
    browser.press("Escape");
    browser.until(&format!("!{open}"));
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(browser.eval(&format!("{STATES}.includes('faulty')")), false, "it was cancelled");
    browser.eval("document.activeElement.click()");
    browser.until(open);
    browser.eval("document.getElementById('confirm-do').click()");
    browser.until(&format!("{STATES}.includes('faulty')"));
    // What the page refuses on the way: the wrong token is one line of the console.
    let said = browser.console();
    assert!(said.len() == 1 && said[0].contains("401"), "{said:#?}");
}

/// Answers as a page would that has a token and does not know the browser; what it was sent.
fn impostor(port: u16) -> Arc<Mutex<String>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let seen = Arc::new(Mutex::new(String::new()));
    let own = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut part = [0; 16384];
            let Ok(read) = stream.read(&mut part) else { continue };
            let head = String::from_utf8_lossy(&part[..read]).into_owned();
            let body =
                r#"{"needs_token":true,"may_read":false,"has_orders":true,"has_place":true}"#;
            let status = if head.starts_with("GET /session ") { 200 } else { 401 };
            let answer = format!(
                "HTTP/1.1 {status} \r\nContent-Type: application/json\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            *own.lock().expect("no panic") += &head;
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    seen
}

#[test]
fn another_server_at_the_address_does_not_get_the_token() {
    let dir = Dir::new("page-token");
    let Some(mut browser) = start_browser(&dir) else { return };
    let program = served(&dir);
    let url = program.url.clone();
    let (open, token) = url.split_once("#token=").expect("a token");
    let port = open.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
    let port = port.expect("a port");
    browser.look(1000, 800, "light", "reduce");
    browser.open(&program.url);
    browser.until(&format!("{STATES}.length === 4"));
    let stored = "sessionStorage.getItem('token')";
    assert_eq!(browser.eval(stored), token);
    drop(program);
    let seen = impostor(port);
    browser.until("!document.getElementById('sign-in').hidden");
    assert_eq!(browser.eval(stored), Value::Null);
    assert_eq!(browser.eval("document.querySelectorAll('.actions button').length"), 1);
    let seen = seen.lock().expect("no panic").clone();
    assert!(seen.contains("GET /session "), "{seen}");
    assert!(!seen.contains("Bearer"), "{seen}");
}

#[test]
fn a_cells_curve_grows_beside_its_bound_and_the_report_follows() {
    let dir = Dir::new("page-sweep");
    let Some(mut browser) = start_browser(&dir) else { return };
    let axe = axe();
    let file = dir.file("small.toml");
    let sweep = "title = \"A <b>small</b> sweep\"\n[[run]]\nmembers = \"paced:hdd-2007\"\n\
                 size = \"32M\"\nlevel = \"raid5\"\ndisks = 3\n\
                 workload = [\"rand-read\", \"rand-write\"]\nseconds = 6\nruns = 2\n\
                 [[run]]\ntarget = \"path:/nonexistent-dir\"\nworkload = \"bonnie++\"\n\
                 size = \"64M\"\n";
    std::fs::write(&file, sweep).expect("written");
    let program =
        Program::start(&dir, &format!("sweep {file} --real-time --db {} --web=0", dir.file("db")));
    browser.look(1600, 1000, "light", "reduce");
    browser.open(&program.url);
    assert_eq!(browser.eval("document.querySelector('h1 b')"), Value::Null, "a text, no markup");
    let points = "Number(document.querySelector('.charts svg')?.dataset.points ?? 0)";
    browser.until(&format!("{points} > 2"));
    let first = browser.eval(points).as_u64().expect("a number");
    browser.until(&format!("{points} > {first} + 3"));
    let bound = browser.eval("document.querySelector('.charts text.bound')?.textContent");
    assert!(bound.as_str().is_some_and(|text| text.starts_with("bound ")), "{bound}");
    browser.until("document.querySelectorAll('tbody tr').length > 0");
    browser.until(&format!("{points} > 4"));
    looks(&mut browser, "sweep", axe.as_deref());
    browser.until("!document.querySelector('.sweep a').hidden");
    assert_eq!(browser.eval("document.querySelectorAll('tbody tr').length > 1"), true);
    // What failed is said, and its reason.
    let job = browser.eval("document.querySelector('.job .head').textContent");
    assert!(job.as_str().is_some_and(|job| job.contains(", 1 could not be run")), "{job}");
    let event = browser.eval("document.querySelector('.events [data-kind=Failed]').textContent");
    let why = "/nonexistent-dir: No such file or directory";
    assert!(event.as_str().is_some_and(|event| event.contains(why)), "{event}");
    looks(&mut browser, "swept", None);
    is_silent(&mut browser, &program.url);
    browser.open(&format!("{}report", program.url));
    let text = "document.querySelectorAll('svg').length > 0 && document.scripts.length === 0";
    assert_eq!(browser.eval(text), true, "the report has charts and no scripts");
    is_silent(&mut browser, &program.url);
}

/// An array of md with 128 members, two of them lost, and a disk with a name that is no name.
fn machine(dir: &Dir) {
    let write = |path: &str, text: &str| {
        let path = dir.0.join(path);
        std::fs::create_dir_all(path.parent().expect("below")).expect("a directory");
        std::fs::write(path, text).expect("written");
    };
    write("proc/stat", "cpu  100 0 50 500 30 0 0 0 0 0\nintr 9 1\n");
    let mut lines = String::new();
    let strange = "<img/src=x>\u{202e}gpj.exe".to_string();
    let names: Vec<String> = (0..128).map(|at| format!("sd{at:03}")).collect();
    for (at, name) in names.iter().chain([&strange, &"md0".to_string()]).enumerate() {
        lines += &format!("8 {at} {name} 1000 0 80000 900 500 0 40000 700 0 5000 9000\n");
    }
    write("proc/diskstats", &lines);
    write("sys/block/md0/size", "4194304000\n");
    write(&format!("sys/block/{}/size", strange.replace('/', "!")), "2048\n");
    for (name, text) in [
        ("level", "raid6"),
        ("raid_disks", "128"),
        ("degraded", "2"),
        ("chunk_size", "524288"),
        ("array_state", "active"),
        ("sync_action", "recover"),
        ("sync_completed", "400000 / 4194304"),
        ("sync_speed", "81920"),
    ] {
        write(&format!("sys/block/md0/md/{name}"), &format!("{text}\n"));
    }
    for (at, name) in names.iter().enumerate() {
        let (slot, state) = match at {
            17 => ("none".to_string(), "faulty"),
            99 => (at.to_string(), "spare"),
            _ => (at.to_string(), "in_sync"),
        };
        write(&format!("sys/block/md0/slaves/{name}/size"), "8\n");
        write(&format!("sys/block/md0/md/dev-{name}/slot"), &slot);
        write(&format!("sys/block/md0/md/dev-{name}/state"), state);
    }
}

#[test]
fn members_are_legible_by_the_hundred() {
    let dir = Dir::new("page-watch");
    let Some(mut browser) = start_browser(&dir) else { return };
    let axe = axe();
    machine(&dir);
    let root = dir.0.display();
    let program = Program::start(&dir, &format!("watch --root {root} --interval 500ms --web=0"));
    let load = Load::start(&dir);
    browser.look(1600, 1000, "light", "reduce");
    browser.open(&program.url);
    browser.until(&format!("{STATES}.length === 129"));
    let heat = "[...document.querySelectorAll('.array .heat i')].filter(it => it.style.width !== \
                '0%').length";
    browser.until(&format!("{heat} > 100"));
    let count = |state: &str| format!("{STATES}.filter(it => it === '{state}').length");
    for (state, number) in [("in_sync", 126), ("missing", 1), ("faulty", 1), ("rebuilding", 1)] {
        assert_eq!(browser.eval(&count(state)), number, "{state}");
    }
    assert_eq!(browser.eval("document.querySelectorAll('main img').length"), 0, "no markup");
    let name = browser.eval("document.querySelector('#disk-list .name').textContent");
    let name = name.as_str().expect("a name");
    assert!(name.contains("<img/src=x>\u{fffd}gpj.exe"), "{name}");
    // Every slot's number is there to be read, and one that is chosen is described.
    let cut = "[...document.querySelectorAll('.array .member .slot')].filter(it => it.scrollWidth \
               > it.parentElement.clientWidth).length";
    assert_eq!(browser.eval(cut), 0);
    // What is scrolled to is not below the head, which stays at the top.
    browser.look(1000, 400, "light", "reduce");
    std::thread::sleep(Duration::from_millis(400));
    browser.eval("document.querySelectorAll('.array .member')[60].scrollIntoView()");
    let above = "document.querySelector('header').getBoundingClientRect().bottom";
    let top = "document.querySelectorAll('.array .member')[60].getBoundingClientRect().top";
    assert_eq!(browser.eval("scrollY > 0"), true);
    assert_eq!(browser.eval(&format!("{top} >= {above} && {top} < {above} + 20")), true);
    browser.look(1600, 1000, "light", "reduce");
    browser.eval("document.querySelectorAll('.array .member')[99].focus()");
    browser.until("document.querySelector('.inspector').textContent.startsWith('slot 99, sd099')");
    looks(&mut browser, "watch", axe.as_deref());
    is_silent(&mut browser, &program.url);
    load.stop();
}

/// Counters that grow: another load for each member.
struct Load {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(dir: &Dir) -> Load {
        let (stats, over) = (dir.0.join("proc/diskstats"), Arc::new(AtomicBool::new(false)));
        let text = std::fs::read_to_string(&stats).expect("it is there");
        let (own, begun) = (over.clone(), Instant::now());
        let at_last = move || {
            let ms = begun.elapsed().as_millis() as usize;
            let line = |(at, line): (usize, &str)| {
                // Per second: up to 250 reads of 64 KiB, busy for up to all of it.
                let (reads, busy) = (ms * (at * 37 % 250) / 1000, ms * (at * 53 % 100) / 100);
                line.replace(" 1000 0 80000", &format!(" {} 0 {}", 1000 + reads, reads * 128))
                    .replace(" 5000 9000", &format!(" {} {}", 5000 + busy, 9000 + busy * 2))
            };
            text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n") + "\n"
        };
        let new = dir.0.join("diskstats.new");
        let thread = std::thread::spawn(move || {
            while !own.load(Ordering::Relaxed) {
                // Renamed: half a file is no reading.
                let written = std::fs::write(&new, at_last());
                written.and_then(|()| std::fs::rename(&new, &stats)).expect("written");
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Load { over, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
    }
}
